"""Columns of a table by cells, so that wide characters line up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len


def widths(table: Sequence[Sequence[str]]) -> list[int]:
    """Cells that each column takes."""
    return [max(cell_len(row[at]) for row in table) for at in range(len(table[0]))]


def aligned(cells: Sequence[str], taken: Sequence[int], left: Collection[int]) -> str:
    """One row: columns in `left` to the left, the others to the right."""
    parts = []
    for column, (cell, width) in enumerate(zip(cells, taken, strict=True)):
        space = " " * (width - cell_len(cell))
        parts.append(f"{cell}{space}" if column in left else f"{space}{cell}")
    return " ".join(parts).rstrip()


def fitting(table: list[list[str]], room: int, spare: Sequence[int]) -> list[list[str]]:
    """The table without as many of the `spare` columns, in their order, as it takes to fit."""
    dropped: set[int] = set()
    for column in spare:
        kept = [[cell for at, cell in enumerate(row) if at not in dropped] for row in table]
        if sum(widths(kept)) + len(kept[0]) - 1 <= room:
            break
        dropped.add(column)
    return [[cell for at, cell in enumerate(row) if at not in dropped] for row in table]
