"""Screens in pages: what is shown of an output, and how the choice is carried to another output.

A page shows lines of an output; a line that is only `…` stands for any lines, `…` within a line for
any characters. The choice is made once, in English: a Chinese page shows the same lines of the
Chinese screen, and a page that is no longer right shows the same lines as they are printed today.
Nothing here runs a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, partial
from typing import Final

from tests.docs.markdown import DRAWN, Block

from heavylift.cli.cells import WIDTH, cell_len
from heavylift.locale import catalogue

CUT: Final = "…"
_NEUTRAL: Final = re.compile(r"[A-Za-z0-9_.,:/×@{}%*-]*[0-9_/{-][A-Za-z0-9_.,:/×@{}%*-]*")
"""Words that are the same in every language: figures, names, flags, paths, commands."""
_TOKEN: Final = re.compile(r"\s+|[\w.:/-]+|.", re.ASCII)
_ITEM: Final = re.compile(r"\s*(?:[^\w\s]|x) ")
"""The first line of something that is listed: what belongs to it is set further in."""
_SLACK: Final = 1
"""Cells by which a line may be ended early: some things are not parted."""
_LEAST: Final = 3
"""Characters of a text that is looked for."""
_SKIP: Final = -0.6
_ALIKE: Final = 0.4


@dataclass(frozen=True, slots=True)
class Session:
    """A command that a page has typed, and the lines that it shows below."""

    command: str
    shown: tuple[str, ...]


class UnlikeError(Exception):
    """A line that is shown has no counterpart in the new output."""


def sessions(block: Block) -> Iterator[Session]:
    """The commands of a block, each with what is shown of its output; of a script nothing is. What
    is drawn is a recording that is replayed.
    """
    if block.language == "sh":
        yield Session(block.text, (CUT,))
        return
    if block.drawn is not None:
        recording = shlex.quote(str(DRAWN / f"{block.drawn}.jsonl"))
        yield Session(f"heavylift top --replay {recording} --once", tuple(block.text.splitlines()))
        return
    typed = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert typed[0] == "", f"{block.page}:{block.line}: begins with output"
    for each in typed[1:]:
        command, _, shown = each.partition("\n")
        yield Session(command, tuple(shown.splitlines()))


def lines(output: str) -> list[str]:
    """The lines of an output without the spaces at their ends."""
    return [line.rstrip() for line in output.splitlines()]


def shows(shown: Sequence[str], output: Sequence[str]) -> bool:
    """True when an output is what is shown of it."""
    return _pattern(shown).fullmatch("".join(f"{line}\n" for line in output)) is not None


def refreshed(shown: Sequence[str], output: Sequence[str]) -> list[str]:
    """The same lines as an output of the same language has them. Raises UnlikeError."""
    if not any(CUT in line for line in shown):
        return list(output)
    wanted = [line for line in shown if line != CUT]
    pairs = _aligned(wanted, list(output), _likeness)
    kept = {}
    for line, number in zip(wanted, pairs, strict=True):
        if number is None:
            raise UnlikeError(line)
        same = _pattern([line]).fullmatch(f"{output[number]}\n")
        kept[number] = [line] if same else [_cut(line, output[number])]
    return _with_gaps(kept, len(output))


def translated(
    shown: Sequence[str], source: Sequence[str], target: Sequence[str], language: str
) -> list[str]:
    """What a page shows of `source`, as `target` has it, the same output in another language.
    Raises UnlikeError.
    """
    if all(line == CUT for line in shown):
        return list(shown)
    if not any(CUT in line for line in shown):
        return list(target)
    ours, theirs = _paragraphs(source), _paragraphs(target)
    counterparts = _aligned(
        ["\n".join(source[part.start : part.stop]) for part in ours],
        ["\n".join(target[part.start : part.stop]) for part in theirs],
        partial(_kinship, language=language),
    )
    chosen: dict[int, list[str]] = {}
    for number, cuts in _found(shown, source):
        place = next(place for place, part in enumerate(ours) if number in part)
        chosen.setdefault(place, []).extend(cuts)
    kept: dict[int, list[str]] = {}
    for place, cuts in chosen.items():
        counterpart = counterparts[place]
        if counterpart is None:
            raise UnlikeError(source[ours[place].start])
        part = theirs[counterpart]
        told = _without(cuts, target[part.start : part.stop])
        kept |= {number: [line] for number, line in zip(part, told, strict=True)}
    return _with_gaps(kept, len(target))


# --- what is shown ------------------------------------------------------------------------------


def _pattern(shown: Sequence[str]) -> re.Pattern[str]:
    parts = [
        r"(?:.*\n)*?" if line == CUT else ".*".join(map(re.escape, line.split(CUT))) + r"\n"
        for line in shown
    ]
    return re.compile("".join(parts))


def _found(shown: Sequence[str], output: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """For each line that is shown the number of the line of the output that it is, and what stands
    there for its `…`.
    """
    parts = [
        r"(?:.*\n)*?" if line == CUT else "(.*)".join(map(re.escape, line.split(CUT))) + r"()\n"
        for line in shown
    ]
    whole = "".join(f"{line}\n" for line in output)
    found = re.fullmatch("".join(parts), whole)
    if found is None:
        raise UnlikeError("\n".join(shown))
    group = 0
    for line in shown:
        if line == CUT:
            continue
        count = line.count(CUT) + 1
        ends = group + count
        cuts = [found[number] for number in range(group + 1, ends)]
        yield whole.count("\n", 0, found.start(ends)), cuts
        group = ends


def _with_gaps(kept: dict[int, list[str]], size: int) -> list[str]:
    """Lines by their number, a `…` wherever others lie between."""
    told: list[str] = []
    after = 0
    for number in sorted(kept):
        if number > after:
            told.append(CUT)
        told += kept[number]
        after = number + 1
    if after < size:
        told.append(CUT)
    return [
        line for place, line in enumerate(told) if line != CUT or told[place - 1 : place] != [CUT]
    ]


def _cut(line: str, target: str) -> str:
    """`target` with a `…` for what `line`, an older form of it, has a `…` for."""
    hidden = [False] * len(target)
    steps = SequenceMatcher(None, line, target, autojunk=False).get_opcodes()
    for _, begins, ends, first, last in steps:
        if CUT in line[begins:ends]:
            hidden[first:last] = [True] * (last - first)
    return _masked(target, hidden)


def _without(cuts: Sequence[str], target: Sequence[str]) -> list[str]:
    """Lines with a `…` for names and figures that are not shown: they are the same in every
    language. Words that are not shown in another language are.
    """
    told = list(target)
    for cut in filter(None, (each.strip() for each in cuts)):
        whole = re.compile(rf"(?<![\w.,]){re.escape(cut)}(?![\w,]|\.\w)", re.ASCII)
        for place, line in enumerate(told):
            if whole.search(line):
                told[place] = whole.sub(CUT, line, count=1)
                break
    return told


def _masked(line: str, hidden: Sequence[bool]) -> str:
    words = "".join("\0" if mark else sign for sign, mark in zip(line, hidden, strict=True))
    return re.sub("\0+", CUT, words)


def steady(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The lines of an output with a `…` for what another run has otherwise: times, folders."""
    told = []
    for line, number in zip(first, _aligned(first, second, _likeness), strict=True):
        if number is None:
            told.append(CUT)
            continue
        ours, theirs = _TOKEN.findall(line), _TOKEN.findall(second[number])
        same = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
        kept = {place for block in same for place in range(block.a, block.a + block.size)}
        hidden = [place not in kept for place, word in enumerate(ours) for _ in word]
        told.append(_masked(line, hidden))
    return told


# --- which line is which --------------------------------------------------------------------------


def _paragraphs(output: Sequence[str]) -> list[range]:
    """The lines of an output that are one sentence or one row: those that were wrapped, joined."""
    parts: list[range] = []
    for number, line in enumerate(output):
        if parts and _goes_on(output[parts[-1].start], output[number - 1], line):
            parts[-1] = range(parts[-1].start, number + 1)
        else:
            parts.append(range(number, number + 1))
    return parts


def _goes_on(first: str, before: str, line: str) -> bool:
    """Whether a line is there because the one before it was full."""
    words = line.strip()
    further = _indent(line) - _indent(first)
    if not words or not before or further < 0 or "  " in words:
        return False
    if not further and _ITEM.match(first):
        return False
    begins = words[0] if cell_len(words[0]) > 1 else re.split(r"\s|(?=[^\x00-\u2fff])", words)[0]
    return cell_len(before) + 1 + cell_len(begins) > WIDTH - (_SLACK if further else 0)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _likeness(one: str, other: str) -> float | None:
    """How much a line that is shown is like one that is printed, in the same language."""
    if not one or not other:
        return 1.0 if one == other else None
    if _pattern([one]).fullmatch(f"{other}\n"):
        return 2.0
    ratio = SequenceMatcher(None, one.replace(CUT, ""), other, autojunk=False).ratio()
    return ratio if ratio >= _ALIKE else None


def _kinship(one: str, other: str, *, language: str) -> float | None:
    """How much a paragraph is like one of another language: the texts of the catalogue that it is
    made of, its place, sign, names and figures.
    """
    if not one or not other:
        return 1.0 if one == other else None
    neutral, others = set(_NEUTRAL.findall(one)), set(_NEUTRAL.findall(other))
    common = len(neutral & others) / max(1, len(neutral | others))
    sign, theirs = one.lstrip()[0], other.lstrip()[0]
    signs = not sign.isalnum() or not theirs.isalnum()
    place = 0.5 * (_indent(one) == _indent(other))
    said, theirs_said = _said(one, catalogue.ENGLISH), _said(other, language)
    meant = max((min(said[key], theirs_said[key]) for key in said.keys() & theirs_said), default=0)
    return 6 * meant + 4 * common + place + (signs and (1.0 if sign == theirs else -1.0))


@cache
def _said(words: str, language: str) -> Mapping[str, float]:
    """The texts of the catalogue that words hold, and how much of the words each is."""
    whole = re.sub(r"\s", "", words)
    found = {}
    for key, parts in _templates(language):
        place = 0
        for part in parts:
            place = whole.find(part, place)
            if place < 0:
                break
            place += len(part)
        else:
            found[key] = sum(map(len, parts)) / len(whole)
    return found


@cache
def _templates(language: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every text by its key: what stands between its parameters, without spaces. Texts of next to
    nothing are left out: they are everywhere.
    """
    with catalogue.spoken(catalogue.normalised(language) or catalogue.ENGLISH):
        known = catalogue.keys()
        texts = {key: re.sub(r"\s", "", catalogue.template(key)) for key in known}
    parts = {
        key: tuple(filter(None, re.split(r"\{[^{}]*\}", words))) for key, words in texts.items()
    }
    return tuple((key, each) for key, each in parts.items() if sum(map(len, each)) >= _LEAST)


def _aligned(
    ours: Sequence[str], theirs: Sequence[str], like: Callable[[str, str], float | None]
) -> list[int | None]:
    """For each of ours the number of theirs that it is, in order; None where there is none."""
    size = len(theirs) + 1
    best = [[0.0] * size for _ in range(len(ours) + 1)]
    step = [[""] * size for _ in range(len(ours) + 1)]
    for row in range(len(ours) + 1):
        for column in range(size):
            ways = []
            if row:
                ways.append((best[row - 1][column] + _SKIP, "ours"))
            if column:
                ways.append((best[row][column - 1] + _SKIP, "theirs"))
            if row and column:
                worth = like(ours[row - 1], theirs[column - 1])
                if worth is not None:
                    ways.append((best[row - 1][column - 1] + worth, "both"))
            if ways:
                best[row][column], step[row][column] = max(ways)
    found: list[int | None] = [None] * len(ours)
    row, column = len(ours), len(theirs)
    while row or column:
        way = step[row][column]
        if way == "both":
            found[row - 1] = column - 1
        row -= way in {"ours", "both"}
        column -= way in {"theirs", "both"}
    return found
