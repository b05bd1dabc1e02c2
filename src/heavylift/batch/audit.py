"""The audit: whether every row of the input is accounted for, read from the files themselves."""

from __future__ import annotations

from pathlib import Path

from heavylift.batch.outputs import FILE_OF, ids, spool_name
from heavylift.batch.records import Audit, State
from heavylift.batch.store import Journal


def audit(folder: Path, journal: Journal) -> Audit:
    """The audit of a batch folder; reads every line of its outputs and changes nothing.

    A line counts when the journal names its row, its state and its very place: a row has one
    place, so what counts is counted once, and any other line is a duplicate.
    """
    counts = journal.counts()
    sizes = journal.sizes()
    found = dict.fromkeys(FILE_OF, 0)
    duplicates = unrecorded = 0
    for state, name in FILE_OF.items():
        path = folder / name
        if not path.exists():
            continue
        end = sizes.get(name, 0)
        unrecorded += max(0, path.stat().st_size - end)
        places = journal.places(state)
        place = next(places, None)
        for line in ids(path, end):
            # Both run through the file: what the journal names before this line is not there.
            while place is not None and place[0] < line[0]:
                place = next(places, None)
            if place == line:
                found[state] += 1
            else:
                duplicates += 1
    accounted = found[State.OK] + found[State.FAILED] + counts.skipped
    # Rows of the spooled input that the journal does not know would be missing without a trace.
    unknown = max(0, _lines(folder / spool_name(journal)) - journal.sendable())
    return Audit(
        input=counts.input + unknown,
        ok=found[State.OK],
        failed=found[State.FAILED],
        skipped=counts.skipped,
        missing=counts.input + unknown - accounted,
        duplicates=duplicates,
        resent=counts.resent,
        unrecorded_bytes=unrecorded,
    )


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))
