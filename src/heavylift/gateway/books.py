"""The books: reservations and what requests cost, as rows of a database. Decides nothing about
time or trust; whoever calls has opened a transaction, so that what is read cannot change before it
is written.

All that comes in one turn is booked together: what a key has taken is read once, and what finished
requests cost is added up before it is written.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from heavylift.gateway import quota
from heavylift.gateway.database import MOST_VALUES, Database, marks
from heavylift.gateway.keys import Key
from heavylift.gateway.quota import Bound, Cost, Limits, Moment, Refusal, Slice, Taken

_LEAST_OUTPUT: Final = 16
"""An open-ended answer is shortened to what the quota has left, but not below this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """An admitted request. `bound` is what it may cost, with an open length made definite.

    `tokens_left` and `requests_left` are what the key has after it; None = not limited.
    """

    id: int
    key_id: str
    bound: Bound
    tokens_left: int | None
    requests_left: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A request whose gateway died, and what it was charged."""

    key_id: str
    model: str
    began_at: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class Wish:
    """A request that wants to be admitted."""

    key: Key
    model: str
    bound: Bound


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of a request: its reservation, and what it came to."""

    id: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Held:
    """A row of `open_request`: whose it is, where it counts, and the most it may cost."""

    id: int
    key_id: str
    team: str | None
    model: str
    slice: int
    day: int
    began_at: float
    prompt_tokens: int
    output_tokens: int


_HELD: Final = ", ".join(field.name for field in fields(_Held))
_SUBJECTS: Final = ("key_id", "team")
_OPEN: Final = {
    column: f"""
    SELECT slice, day, count(*), CAST(sum(prompt_tokens + output_tokens) AS BIGINT)
    FROM open_request WHERE {column} = ? GROUP BY slice, day
    """  # noqa: S608 - one of two names written above
    for column in _SUBJECTS
}
_DAY: Final = {
    column: f"""
    SELECT CAST(coalesce(sum(prompt_tokens + completion_tokens), 0) AS BIGINT)
    FROM usage WHERE {column} = ? AND day = ?
    """  # noqa: S608 - as above
    for column in _SUBJECTS
}
_SLICES: Final = "SELECT number, requests, tokens FROM slice WHERE subject = ? AND number >= ?"
_INSERT: Final = f"""
INSERT INTO open_request (holder, {_HELD}) VALUES (?, {marks(fields(_Held))})
"""  # noqa: S608 - our own names
_ADD_SLICE: Final = """
INSERT INTO slice (subject, number, requests, tokens) VALUES (?, ?, ?, ?)
ON CONFLICT (subject, number) DO UPDATE SET
    requests = slice.requests + excluded.requests, tokens = slice.tokens + excluded.tokens
"""
_ADD_USAGE: Final = """
INSERT INTO usage (key_id, day, team, model, requests, prompt_tokens, completion_tokens,
    cached_tokens, estimated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key_id, day, team, model) DO UPDATE SET
    requests = usage.requests + excluded.requests,
    prompt_tokens = usage.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = usage.completion_tokens + excluded.completion_tokens,
    cached_tokens = usage.cached_tokens + excluded.cached_tokens,
    estimated = usage.estimated + excluded.estimated
"""


class Books:
    """The books as one gateway process, `holder`, keeps them."""

    def __init__(self, database: Database, holder: str) -> None:
        self._database = database
        self.holder = holder
        # Ids are made here: a row of another process with the same one would refuse to be
        # written, which one chance in 2^31 does not bring about.
        self._next_id = secrets.randbits(31) << 32
        self.attempted: list[int] = []
        """Ids of reservations whose writing was begun."""

    def book(
        self, settlements: Iterable[Settlement], wishes: Sequence[Wish], now: Moment
    ) -> list[Reservation | Refusal]:
        """Charge what has ended, then admit or refuse what wants in, in the order in which it came.
        An answer for each wish.
        """
        self._settle({one.id: one.cost for one in settlements})
        taken: dict[tuple[str, str], Taken] = {}
        rows: list[tuple[object, ...]] = []
        answers = [self._admit(wish, taken, rows, now) for wish in wishes]
        if rows:
            self._database.execute_each(_INSERT, rows)
        return answers

    def _admit(
        self,
        wish: Wish,
        known: dict[tuple[str, str], Taken],
        rows: list[tuple[object, ...]],
        now: Moment,
    ) -> Reservation | Refusal:
        """`known` is what has been read in this transaction, and admitted since."""
        key, bound = wish.key, wish.bound
        subjects = [("key_id", key.id, key.limits)]
        if key.team is not None and key.team_limits.any:
            subjects.append(("team", key.team, key.team_limits))
        left: int | None = None
        for column, name, limits in subjects:
            if (column, name) not in known:
                known[column, name] = self._taken(column, name, limits, now)
            one = quota.tokens_left(limits, known[column, name], now)
            left = one if left is None or (one is not None and one < left) else left
        output_tokens = bound.shortened(left, _LEAST_OUTPUT)
        definite = Bound(prompt_tokens=bound.prompt_tokens, output_tokens=output_tokens)
        tokens = definite.tokens
        for column, name, limits in subjects:
            refusal = quota.judge(limits, known[column, name], tokens, now)
            if refusal is not None:
                return refusal
        requests_left = quota.requests_left(key.limits, known["key_id", key.id], now)
        for column, name, _ in subjects:
            known[column, name] = known[column, name].with_one_more(tokens, now)
        self._next_id += 1
        self.attempted.append(self._next_id)
        rows.append(
            (
                self.holder,
                self._next_id,
                key.id,
                key.team,
                wish.model,
                now.slice,
                now.day,
                now.epoch_s,
                definite.prompt_tokens,
                output_tokens,
            )
        )
        return Reservation(
            id=self._next_id,
            key_id=key.id,
            bound=definite,
            tokens_left=None if left is None else left - tokens,
            requests_left=None if requests_left is None else requests_left - 1,
        )

    def _taken(self, column: str, name: str, limits: Limits, now: Moment) -> Taken:
        """What a key or team has taken, as far as its limits ask."""
        if not limits.any:
            return Taken()
        still_open = self._database.execute(_OPEN[column], (name,)).fetchall()
        slices: list[Slice] = []
        if limits.by_minute:
            rows = self._database.execute(_SLICES, (f"{column}:{name}", now.first_slice))
            slices = [
                Slice(number=number, requests=requests, settled_tokens=tokens)
                for number, requests, tokens in rows.fetchall()
            ]
            slices += [
                Slice(number=number, requests=count, open_tokens=tokens)
                for number, _, count, tokens in still_open
            ]
        return Taken(
            slices=tuple(slices),
            day_settled_tokens=(
                0
                if limits.tokens_per_day is None
                else self._database.execute(_DAY[column], (name, now.day)).fetchone()[0]
            ),
            # A request that was open at midnight is charged to the day it began in.
            day_open_tokens=sum(tokens for _, day, _, tokens in still_open if day == now.day),
            open_requests=sum(count for _, _, count, _ in still_open),
        )

    def _settle(self, costs: dict[int, Cost]) -> None:
        """Charge requests. Doing it again changes nothing: their rows are gone."""
        ids = list(costs)
        for first in range(0, len(ids), MOST_VALUES):
            some = ids[first : first + MOST_VALUES]
            rows = self._database.execute(
                f"DELETE FROM open_request WHERE id IN ({marks(some)}) RETURNING {_HELD}",  # noqa: S608 - marks and our own names
                some,
            ).fetchall()
            self._charge([_Held(*row) for row in rows], costs)

    def _charge(self, ended: Iterable[_Held], costs: dict[int, Cost]) -> None:
        by_slice: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0] * 2)
        by_day: dict[tuple[str, int, str, str], list[int]] = defaultdict(lambda: [0] * 5)
        for held in ended:
            cost = costs[held.id]
            _add(by_slice[f"key_id:{held.key_id}", held.slice], (1, cost.tokens))
            if held.team is not None:
                _add(by_slice[f"team:{held.team}", held.slice], (1, cost.tokens))
            _add(
                by_day[held.key_id, held.day, held.team or "", held.model],
                (
                    1,
                    cost.prompt_tokens,
                    cost.completion_tokens,
                    cost.cached_tokens,
                    int(cost.estimated),
                ),
            )
        for statement, sums in ((_ADD_SLICE, by_slice), (_ADD_USAGE, by_day)):
            if sums:
                self._database.execute_each(
                    statement, [(*place, *sum_) for place, sum_ in sums.items()]
                )

    # --- housekeeping ---------------------------------------------------------------------------

    def other_holders(self) -> list[str]:
        """Every other process that holds something, alive or not."""
        rows = self._database.execute(
            "SELECT DISTINCT holder FROM open_request WHERE holder <> ?", (self.holder,)
        ).fetchall()
        return [holder for (holder,) in rows]

    def charge_lost(self, holder: str) -> list[Lost]:
        """Charge all that a process which is gone has left open, at the bound."""
        rows = self._database.execute(
            f"SELECT {_HELD} FROM open_request WHERE holder = ?",  # noqa: S608 - our own names
            (holder,),
        ).fetchall()
        found = [_Held(*row) for row in rows]
        costs = {
            held.id: quota.lost(
                Bound(prompt_tokens=held.prompt_tokens, output_tokens=held.output_tokens)
            )
            for held in found
        }
        self._settle(costs)
        return [
            Lost(key_id=held.key_id, model=held.model, began_at=held.began_at, cost=costs[held.id])
            for held in found
        ]

    def forget_before(self, slice_number: int) -> None:
        """Forget slices that no longer count."""
        self._database.execute("DELETE FROM slice WHERE number < ?", (slice_number,))


def _add(sums: list[int], more: tuple[int, ...]) -> None:
    for place, one in enumerate(more):
        sums[place] += one
