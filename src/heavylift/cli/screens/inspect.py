"""A checkpoint's figures on 80 columns: what it holds, by dtype, role and layer; what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from heavylift.cli.cells import wrap
from heavylift.cli.output import glyphs
from heavylift.cli.text import listed, of_facts, text
from heavylift.records.inspection import FoundDefect, Inspection, LayerBytes, Stored
from heavylift.units import format_gb, format_gib

_LISTED_DEFECTS: Final = 20
_LISTED_LAYERS: Final = 12


def lines(found: Inspection) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield from _head(found)
    yield from _totals(found)
    yield ""
    yield text("inspect.stored.head")
    yield from map(_stored, found.stored)
    yield ""
    yield text("inspect.dtypes.head")
    for share in found.dtypes:
        yield text(
            "inspect.dtypes.row",
            name=share.name,
            gb=format_gb(share.bytes, 3),
            percent=f"{_percent(share.bytes, found.tensor_bytes):.1f}",
            tensors=f"{share.tensors:,}",
        )
    if found.layers:
        yield ""
        yield text("inspect.layers.head")
        yield from _layers(found)
    yield from _defects(found)


def _head(found: Inspection) -> Iterator[Text | str]:
    word, style = ("sound", "bold green") if found.sound else ("unsound", "bold red")
    glyph = glyphs()["ok" if found.sound else "fail"]
    origin = text(f"inspect.origin.{found.origin}")
    yield Text.assemble(
        (f"{glyph} {text(f'inspect.{word}')}", style),
        f"  {listed((found.file_format, origin), 'list.parts')}",
    )
    # The model's name, and its form in the words of the facts.
    parts = found.title.split(", ", 1) if found.title else [found.where]
    yield from _wrapped(listed([of_facts(part) for part in parts]), "")


def _totals(found: Inspection) -> Iterator[str]:
    yield text(
        "inspect.bytes",
        gb=format_gb(found.tensor_bytes, 3),
        gib=format_gib(found.tensor_bytes),
        tensors=f"{found.tensors:,}",
    )
    if found.file_bytes is not None:
        yield text(
            "inspect.files", count=f"{len(found.files):,}", gb=format_gb(found.file_bytes, 3)
        )
    total = text("inspect.unknown") if found.total_params is None else _count(found.total_params)
    active = text("inspect.unknown") if found.active_params is None else _count(found.active_params)
    yield text("inspect.params", total=total, active=active)
    if found.experts is not None:
        taken = found.experts_per_token
        yield text(
            "inspect.experts",
            experts=f"{found.experts:,}",
            taken=text("inspect.unknown") if taken is None else f"{taken:,}",
        )
    if found.uncounted_tensors:
        yield text("inspect.uncounted", tensors=f"{found.uncounted_tensors:,}")
    if found.source is not None:
        yield text("inspect.source", source=found.source)


def _stored(row: Stored) -> str:
    bits = "" if row.bits_per_weight is None else f"{row.bits_per_weight:.4g}"
    if row.parameters is None:
        bits = text("inspect.unknown")
    key = "inspect.quantised" if row.quantised else "inspect.as_computed"
    scales = "" if not row.scale_bytes else text("inspect.scales", gb=format_gb(row.scale_bytes, 3))
    parameters = text("inspect.unknown") if row.parameters is None else _count(row.parameters)
    return text(
        "inspect.stored.row",
        role=text(f"inspect.role.{row.role}"),
        gb=format_gb(row.bytes, 3),
        parameters=parameters,
        dtype=row.dtype,
        bits=bits,
        quantised=text(key),
        scales=scales,
    ).rstrip()


def _layers(found: Inspection) -> Iterator[str]:
    for row in found.layers[:_LISTED_LAYERS]:
        head = text("inspect.layers.row", gb=format_gb(row.bytes_each, 3)) + "  "
        for number, line in enumerate(_wrapped(_runs(row), " " * cell_len(head))):
            yield line if number else f"{head}{line.lstrip()}"
    more = len(found.layers) - _LISTED_LAYERS
    if more > 0:
        yield text("inspect.layers.more", count=more)
    yield text("inspect.layers.other", gb=format_gb(found.other_bytes, 3))


def _defects(found: Inspection) -> Iterator[Text | str]:
    if found.ignored:
        yield ""
        yield from _wrapped(
            text("inspect.ignored", count=len(found.ignored), first=found.ignored[0]), ""
        )
    if found.defects:
        yield ""
    for defect in found.defects[:_LISTED_DEFECTS]:
        yield from defect_lines(defect)
    more = len(found.defects) - _LISTED_DEFECTS
    if more > 0:
        yield text("inspect.more_defects", count=more)


def defect_lines(defect: FoundDefect) -> Iterator[Text | str]:
    """One defect: a glyph with a word, where it is, what it is."""
    status = "warn" if defect.remark else "fail"
    style = "yellow" if defect.remark else "bold red"
    word = text(f"inspect.{'remark' if defect.remark else 'defect'}")
    yield Text.assemble((f"{glyphs()[status]} {word}", style), f"  {defect.path}")
    problem = text(f"defect.{defect.problem}", detail=defect.detail)
    yield from _wrapped(problem, "    ")


def _runs(row: LayerBytes) -> str:
    """`0-2, 4-6`: layers that follow one another are named by the first and the last."""
    runs: list[list[int]] = []
    for layer in row.layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _wrapped(words: str, indent: str) -> Iterator[str]:
    return wrap(" ".join(words.split()), indent, cuts=False)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _count(number: int) -> str:
    """Parameters with a unit: `2,779.93 B`, `135.52 M`, `384`."""
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:,.2f} {unit}"
    return f"{number:,}"
