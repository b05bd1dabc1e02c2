"""Check files: shipped ones are whole, the user's own are read, mistakes are named."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from heavylift.cli.text import keys
from heavylift.devserver.bad import bad_server
from heavylift.devserver.library import load
from heavylift.devserver.schema_examples import example
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.schema import FactKind, Golden
from heavylift.verify.judge import schema_problem
from heavylift.verify.probes.schemas import family_member, made, schemas
from heavylift.verify.records import Profile, Status, Verification
from heavylift.verify.suites import PROBES, chosen, decode, golden_checks, own, shipped

OWN = """
[[check]]
id = "own.capital"
probe = "ask"
trials = { smoke = 2 }
params = { question = "Reply with this and nothing else, exactly: granite", contains = ["granite"] }

[[check]]
id = "own.wrong"
probe = "ask"
trials = { smoke = 2 }
on_failure = "warn"
params = { question = "Reply with this and nothing else, exactly: granite", lacks = ["granite"] }
"""


def test_shipped_checks_have_ids_of_their_own_and_a_title() -> None:
    """The catalogue has a sentence for each; a ladder has one for all its rungs."""
    checks = shipped()
    ids = [check.id for check in checks]
    assert len(set(ids)) == len(ids)
    titled = {
        key.removeprefix("verify.check.") for key in keys() if key.startswith("verify.check.")
    }
    of_the_run = {name for name in titled if name.partition(".")[0] in ("memory", "soak")}
    assert set(ids) - {"context.ladder"} == titled - of_the_run
    assert {check.probe for check in checks} | {"ask", "golden"} == set(PROBES)


def test_the_ladder_ends_at_the_servers_limit() -> None:
    """Rungs below it, then the limit itself; an unknown limit allows only the first."""

    def rungs(limit: int | None) -> list[str]:
        checks = chosen(
            shipped(), Profile.ACCEPTANCE, context_tokens=limit, only=["context.ladder"]
        )
        return [check.id for check in checks]

    assert rungs(131_072) == ["context.2k", "context.10k", "context.50k", "context.128k"]
    assert rungs(100_000)[-1] == "context.100000"
    assert rungs(1024) == ["context.1k"]
    assert rungs(None) == ["context.2k"]
    assert rungs(2**21)[-1] == "context.1M"


def test_checks_are_chosen_by_id_or_group() -> None:
    """`skip` outranks `only`."""
    found = chosen(
        shipped(), Profile.SMOKE, context_tokens=4096, only=["tools"], skip=["tools.none"]
    )
    assert {check.group for check in found} == {"tools"}
    assert "tools.none" not in {check.id for check in found}


def test_the_users_own_checks_are_run(verify: Callable[..., Verification], tmp_path: Path) -> None:
    """What must be in the answer and what must not."""
    (tmp_path / "mine.toml").write_text(OWN)
    checks, _ = own(tmp_path)
    verification = verify(load("obliging"), checks=checks)
    assert [check.status for check in verification.checks] == [Status.PASS, Status.WARN]
    assert verification.checks[1].reasons == {"wrong_answer": 2}


PROBE = """
from heavylift.verify.probes.base import verdict

def shouts(situation, params):
    (outcome,) = yield (situation.ask("Repeat exactly: granite"),)
    return verdict(None if params["word"] in outcome.reply.text else "quiet", outcome)

def stumbles(situation, params):
    yield (situation.ask("Hello."),)
    return params["nothing"]

PROBES = {"shouts": shouts, "stumbles": stumbles}
"""
PROBED = """
[[check]]
id = "own.shouts"
probe = "shouts"
trials = { smoke = 2 }
params = { word = "granite" }

[[check]]
id = "own.stumbles"
probe = "stumbles"
trials = { smoke = 1 }
"""


def test_the_users_own_probes_are_run_and_their_mistakes_are_no_failures_of_the_server(
    verify: Callable[..., Verification], tmp_path: Path
) -> None:
    """A probe of a Python file; one that raises proves nothing, and says what it raised."""
    (tmp_path / "mine.py").write_text(PROBE)
    (tmp_path / "mine.toml").write_text(PROBED)
    checks, probes = own(tmp_path)
    verification = verify(load("obliging"), checks=checks, probes=probes)
    assert [check.status for check in verification.checks] == [Status.PASS, Status.UNKNOWN]
    assert "KeyError" in verification.checks[1].evidence[0]


def test_the_documented_examples_can_be_used(
    verify: Callable[..., Verification], tmp_path: Path
) -> None:
    """The TOML and the Python of the page on checks of one's own, as they stand there."""
    page = (Path(__file__).parents[3] / "docs/en/handbook/checks.md").read_text("utf-8")
    toml, python = re.findall(r"```(?:toml|python)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(toml)
    (tmp_path / "mine.py").write_text(python)
    checks, probes = own(tmp_path)
    greets = replace(checks[0], id="own.greets", probe="greets", params={"word": "Ember"})
    verification = verify(load("obliging"), checks=(*checks, greets), probes=probes)
    assert [check.status for check in verification.checks] == [Status.WARN, Status.WARN]
    assert set(verification.checks[1].reasons) == {"no_greeting"}


@pytest.mark.parametrize("source", ["1 / 0", "PROBES = 1", "import nothing_of_that_name"])
def test_a_python_file_without_probes_is_an_error(tmp_path: Path, source: str) -> None:
    """It raises, states none, or cannot be imported."""
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(HeavyliftError, match="USE066"):
        own(tmp_path)


def test_a_known_request_has_the_tokens_that_are_known_of_it(
    verify: Callable[..., Verification],
) -> None:
    """Counted by the obliging engine, then by one that renders another template."""
    golden = Golden(
        name="plain",
        content="one two three",
        body='{"thinking": {"type": "disabled"}}',
        prompt_tokens=7,
        kind=FactKind.REPORTED,
        source="test",
        as_of=date(2026, 11, 30),
    )
    checks = golden_checks([golden])
    changed = bad_server("front-changes-template").scenario()
    sound, other = (verify(each, checks=checks) for each in (load("obliging"), changed))
    assert [(c.id, c.status) for c in sound.checks] == [("goldens.plain", Status.PASS)]
    assert other.checks[0].reasons == {"prompt_tokens_differ": 1}


def test_the_shipped_goldens_name_their_model() -> None:
    """Each has a family, and a body that is a JSON object."""
    for golden in Catalog().goldens():
        assert golden.families
        assert isinstance(json.loads(golden.body), dict)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("not toml", "USE066"),
        ("[[check]]\nid = 'x'", "USE066"),
        ("[[check]]\nid = 'x.y'\nprobe = 'ask'\ntrials = {smoke = 1}\nreqired_rate = 1", "USE066"),
        ("[[check]]\nid = 'x.y'\nprobe = 'nothing'\ntrials = {smoke = 1}", "USE068"),
    ],
)
def test_a_mistake_in_a_check_file_is_named(text: str, code: str) -> None:
    """What is no TOML, lacks a field, or names a probe that there is not."""
    with pytest.raises(HeavyliftError) as caught:
        decode(text, "mine.toml")
    assert caught.value.code == code


def test_a_folder_without_checks_is_an_error(tmp_path: Path) -> None:
    """Running nothing would pass."""
    with pytest.raises(HeavyliftError, match="USE067"):
        own(tmp_path)


@pytest.mark.parametrize(("name", "schema"), schemas(), ids=lambda value: str(value)[:20])
def test_the_schemas_have_examples_and_counterexamples(
    name: str, schema: dict[str, object]
) -> None:
    """The obliging engine's example is valid, and an empty object is not."""
    assert schema_problem(example(schema, schema), schema) is None, name
    assert schema_problem({}, schema) is not None


def test_made_schemas_are_schemas_with_examples() -> None:
    """Three hundred: valid themselves, filled by the obliging engine, no two alike but few; all the
    features are among them.
    """
    texts = set()
    for seed in range(300):
        schema = made(random.Random(seed).random)
        Draft202012Validator.check_schema(schema)
        assert schema_problem(example(schema, schema), schema) is None, schema
        assert schema_problem({}, schema) is not None
        texts.add(json.dumps(schema, ensure_ascii=False, sort_keys=True))
    assert len(texts) > 290
    everything = "".join(texts)
    for feature in (
        "enum",
        "anyOf",
        "$ref",
        "minItems",
        "multipleOf",
        "maximum",
        "maxLength",
        "名前",
    ):
        assert feature in everything, feature


def test_known_schemas_come_first_and_then_made_ones() -> None:
    """Each known one streamed and whole; then never the same again."""
    chance = random.Random(1).random
    names = [family_member(number, chance)[0] for number in range(2 * len(schemas()) + 4)]
    known = [name for name, _ in schemas()]
    assert names == [*known, *known, "made", "made", "made", "made"]
