"""The split service on 80 columns: verdict, pools, bytes on the wire, reasons, risks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from heavylift.cli.screens.plan import wrapped
from heavylift.cli.screens.speed import band, basis, number, row, workload
from heavylift.cli.text import listed, of_facts, text
from heavylift.records.prefill_decode import Pool, PrefillDecode, SplitVerdict
from heavylift.records.speed import Band

_STYLE: Final = {
    SplitVerdict.PAYS: "bold green",
    SplitVerdict.DOES_NOT_PAY: "bold red",
    SplitVerdict.DEPENDS: "bold yellow",
    SplitVerdict.NOT_POSSIBLE: "bold red",
}


def lines(answer: PrefillDecode) -> Iterator[Text | str]:
    """The screen, line by line."""
    yield Text(text(f"pd.verdict.{answer.verdict}"), style=_STYLE[answer.verdict])
    yield text(
        "pd.subject",
        title=answer.title,
        engine=answer.engine_title,
        version=answer.engine_version,
        limit=number(answer.tpot_limit_s * 1000),
    )
    yield from wrapped(workload(answer.workload, clients=bool(answer.needs)), "  ")
    yield ""
    yield from _pools(answer)
    yield ""
    yield from _handover(answer)
    yield ""
    for note in answer.reasons:
        yield from wrapped(f"· {text(f'pd.reason.{note.code}', **note.params)}", "  ")
    yield from _depends(answer)
    for note in answer.risks:
        words = text(f"pd.risk.{note.code}", **note.params)
        yield from wrapped(f"! {words}", "  ", style="yellow")
    yield from basis(answer.basis)


def _pools(answer: PrefillDecode) -> Iterator[str]:
    yield _pool(text("pd.prefill_unit"), answer.prefill)
    yield _pool(text("pd.decode_unit"), answer.decode)
    if answer.decode.batch is not None:
        yield row(text("pd.batch"), _band(answer.decode.batch), text("pd.batch_is"))
    if answer.ratio is not None:
        units = text("pd.units", prefill=answer.prefill_units, decode=answer.decode_units)
        yield row(text("pd.ratio"), _band(answer.ratio), units)
    per_gpu = text("pd.tokens_per_s_gpu")
    yield row(text("pd.split"), _band(answer.split_per_gpu), per_gpu)
    yield row(text("pd.whole"), _band(answer.whole_per_gpu), per_gpu)
    if answer.gain is not None:
        yield row(text("pd.gain"), _band(answer.gain), text("pd.gain_is"))
    for need in answer.needs:
        split = text("pd.need_split", prefill=need.prefill_units, decode=need.decode_units)
        whole = text("pd.none") if need.whole_units is None else str(need.whole_units)
        yield row(text("pd.need"), split, text("pd.need_whole", whole=whole))


def _pool(name: str, pool: Pool) -> str:
    where = f"req/s · {pool.rack.label} {pool.layout.label}"
    return row(name, _band(pool.requests_per_s), where)


def _band(value: Band | None) -> str:
    return text("pd.none") if value is None or not value.high else band(value)


def _handover(answer: PrefillDecode) -> Iterator[Text | str]:
    moved = answer.handover
    words = text(
        "pd.handover",
        state=f"{moved.state_bytes:,}",
        token=f"{moved.kv_bytes_per_token:,}",
        tokens=f"{moved.tokens:,}",
        logical=f"{moved.logical_bytes / 1e9:,.2f}",
        wire=f"{moved.wire_bytes / 1e9:,.2f}",
        copies=f"{moved.wire_copies:g}",
    )
    yield from wrapped(words, "")
    for time in answer.times:
        seconds = f"{number(time.seconds * 1000)} ms"
        yield row(f"{time.gb_per_s:g} GB/s", seconds, of_facts(time.title))


def _depends(answer: PrefillDecode) -> Iterator[Text]:
    if not answer.depends_on:
        return
    turned = [
        text(f"pd.depends.{note.code}", verdict=text(f"pd.word.{note.params['verdict']}"))
        for note in answer.depends_on
    ]
    yield from wrapped(text("pd.depends", listed=listed(turned, "list.clauses")), "  ")
