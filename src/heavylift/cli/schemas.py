"""JSON Schemas of everything that `--json` prints: the shared records, and the stages' reports.

`python -m heavylift.cli.schemas FOLDER` writes one file per record: `docs/schemas`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from heavylift.bench.records import Comparison as BenchComparison
from heavylift.bench.records import Report
from heavylift.gateway import openapi
from heavylift.quality.records import Comparison
from heavylift.records.json_schema import RECORDS, files
from heavylift.verify.records import Verification

REPORTS: Final[dict[str, type]] = {
    "bench": Report,
    "bench-compare": BenchComparison,
    "verify": Verification,
    "quality": Comparison,
}
"""Name of the schema file -> the report of a stage."""
ADMIN: Final = "gateway-admin.openapi.json"
"""The file that describes the gateway's admin routes."""


def main(folder: Path) -> None:
    """Writes the schema files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(RECORDS | REPORTS).items():
        (folder / name).write_bytes(content)
    admin = msgspec.json.format(msgspec.json.encode(openapi.document()), indent=2)
    (folder / ADMIN).write_bytes(admin + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
