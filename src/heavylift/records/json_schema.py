"""JSON Schemas of the shared records, for programs that read them: `docs/schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from heavylift.records.bring_up import BringUp
from heavylift.records.decision import Decision
from heavylift.records.deployment import StatusReport
from heavylift.records.fetched import Fetched
from heavylift.records.finding import Finding
from heavylift.records.fit import FitList
from heavylift.records.golive import GoLive
from heavylift.records.imported import Imported
from heavylift.records.inspection import Inspection
from heavylift.records.integrity import Integrity
from heavylift.records.launch import LaunchSpec
from heavylift.records.plan import Plan
from heavylift.records.prefill_decode import PrefillDecode
from heavylift.records.receipt import Receipt
from heavylift.records.recipe import LaunchDiff, Recipe
from heavylift.records.rehearsal import Rehearsal
from heavylift.records.release import Release
from heavylift.records.search import Searched
from heavylift.records.series import History
from heavylift.records.simulation import Simulation
from heavylift.records.snapshot import Snapshot
from heavylift.records.speed import Speed
from heavylift.records.variants import VariantTable
from heavylift.records.watch import WatchReport

RECORDS: Final[dict[str, type]] = {
    "plan": Plan,
    "launch-spec": LaunchSpec,
    "fetched": Fetched,
    "finding": Finding,
    "inspection": Inspection,
    "integrity": Integrity,
    "receipt": Receipt,
    "release": Release,
    "rehearsal": Rehearsal,
    "bring-up": BringUp,
    "golive": GoLive,
    "status": StatusReport,
    "snapshot": Snapshot,
    "speed": Speed,
    "prefill-decode": PrefillDecode,
    "decision": Decision,
    "watch": WatchReport,
    "history": History,
    "recipe": Recipe,
    "launch-diff": LaunchDiff,
    "simulation": Simulation,
    "fit": FitList,
    "imported": Imported,
    "variants": VariantTable,
    "search": Searched,
}
"""Name of the schema file -> the record."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document(record: type) -> dict[str, Any]:
    """The JSON Schema of a record, its parts under `$defs`."""
    (reference,), parts = msgspec.json.schema_components((record,))
    return {"$schema": _DIALECT, "title": record.__name__, **reference, "$defs": parts}


def files(records: Mapping[str, type]) -> dict[str, bytes]:
    """The schema file of each record: its name and its content."""
    return {
        f"{name}.schema.json": msgspec.json.format(
            msgspec.json.encode(document(record), order="deterministic"), indent=2
        )
        + b"\n"
        for name, record in records.items()
    }
