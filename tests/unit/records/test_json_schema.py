"""JSON Schemas: the committed ones are the generated ones, and records satisfy them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from heavylift.cli.schemas import REPORTS
from heavylift.records.finding import Finding, Severity
from heavylift.records.json_schema import RECORDS, document, files
from heavylift.records.launch import LaunchSpec, Mount, RankSpec, Setting
from heavylift.records.release import Release, Verdict

ALL = RECORDS | REPORTS
"""The shared records and the reports of the stages."""

COMMITTED = Path(__file__).parents[3] / "docs" / "schemas"

FINDING = Finding(
    id="gpu.driver",
    code="PRE104",
    severity=Severity.WARN,
    subject="gpu 0",
    observed=1.5,
    expected=True,
    params={"count": 3, "name": None},
)
LAUNCH = LaunchSpec(
    engine="vllm",
    engine_version="0.32.0",
    image_digest=None,
    model="kimi-k3",
    model_revision=None,
    ranks=(
        RankSpec(
            rank=0,
            host="node-0",
            argv=("serve", "model"),
            env={"A": "b"},
            mounts=(Mount(source="/models", target="/models"),),
            ports={"http": 8000},
        ),
    ),
    expected_phases=("weights", "ready"),
    deadline_s=600,
    plan_digest="sha256:aa",
    settings=(Setting(name="x", value="1", origin="computed", source="plan"),),
)
RELEASE = Release(
    deployment="chat",
    number=1,
    created_at="2026-11-30T09:00:00Z",
    recipe_digest="sha256:aa",
    plan_digest="sha256:bb",
    receipt_digest=None,
    engine="vllm",
    engine_version="0.32.0",
    image_digest=None,
    model_revision=None,
    driver=None,
    verdicts=(Verdict(stage="verify", status="pass", at="2026-11-30T10:00:00Z"),),
)


def test_the_committed_schemas_are_the_generated_ones() -> None:
    """`make schemas` has been run since a record last changed."""
    committed = {path.name: path.read_bytes() for path in COMMITTED.glob("*.schema.json")}
    assert committed == files(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_schema_is_a_schema(name: str) -> None:
    """Each is valid under the draft it names, and forgets no version."""
    schema = document(ALL[name])
    Draft202012Validator.check_schema(schema)
    parts: dict[str, Any] = schema["$defs"]
    assert "schema" in parts[ALL[name].__name__]["properties"]


@pytest.mark.parametrize("record", [FINDING, LAUNCH, RELEASE])
def test_an_encoded_record_satisfies_its_schema(record: object) -> None:
    """What `--json` writes is what the schema promises, and a wrong type is not."""
    validator = Draft202012Validator(document(type(record)))
    encoded = msgspec.json.decode(msgspec.json.encode(record))
    validator.validate(encoded)
    assert not validator.is_valid({**encoded, "schema": "one"})
    assert not validator.is_valid({})


def test_the_generator_writes_the_files(tmp_path: Path) -> None:
    """`python -m heavylift.cli.schemas FOLDER` makes the folder and all files."""
    target = tmp_path / "new"
    subprocess.run([sys.executable, "-m", "heavylift.cli.schemas", str(target)], check=True)
    assert {path.name: path.read_bytes() for path in target.glob("*.schema.json")} == files(ALL)
