"""The server of the pages: addresses to answers. It reads and computes; it changes nothing.

GET /                 the planner; the address holds every input
GET /part/NAME        a part of that page as HTML, for the script
GET /api/NAME         the record itself as JSON, as `--json` writes it
GET /static/FILE      the style, the script
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.locale.text import sentence, text
from heavylift.plan.command import plan_command
from heavylift.records.plan import Plan
from heavylift.web import render
from heavylift.web.bars import bars
from heavylift.web.charts import MeasuredRate, cost_chart, speed_chart
from heavylift.web.guard import guard, language_chosen
from heavylift.web.live import Places
from heavylift.web.live_pages import LivePages
from heavylift.web.planner import Planner
from heavylift.web.question import Question, keep_text, of_command, of_query
from heavylift.web.scale import LEAST_CONTEXT, concurrency_track, context_track
from heavylift.web.simulation import simulation

T = TypeVar("T")
Fill = dict[str, Any]

_MORE: Final = (
    "kv-dtype",
    "tp",
    "pp",
    "dp",
    "ep",
    "dcp",
    "gpu-memory-utilization",
    "max-num-seqs",
    "max-batched-tokens",
    "engine-version",
    "moe-backend",
)
_TYPES: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What the page shows when its address says nothing."""

    model: str
    rack: str


class Pages:
    """The handlers, with what they share."""

    def __init__(
        self,
        planner: Planner,
        start: Start,
        places: Places,
        measured: tuple[MeasuredRate, ...] = (),
    ) -> None:
        self._planner = planner
        self._start = start
        self._measured = measured
        self._templates = render.environment()
        self._live = LivePages(places, self._templates)
        # What a person waits for while moving a slider never waits for what takes seconds.
        self._quick = ThreadPoolExecutor(2, thread_name_prefix="plan")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="search")

    def application(self) -> web.Application:
        """The application, to be run or tested."""
        app = web.Application(middlewares=[guard], client_max_size=0)
        app.router.add_get("/", self.planner)
        self._live.add_to(app)
        app.router.add_get("/part/{name}", self.part)
        app.router.add_get("/api/{name}", self.api)
        app.router.add_get("/static/{name}", self.static)
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _app: web.Application) -> None:
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)

    # --- pages -----------------------------------------------------------------------------------

    async def planner(self, request: web.Request) -> web.StreamResponse:
        """The planner with its plan; what takes longer comes in parts, or at once with `full`."""
        moved = language_chosen(request)
        if moved is not None:
            return moved
        fill: Fill = {"page": "planner", "question": None, "parts": {}}
        try:
            question = self._question(request.query)
            fill |= {"question": question}
            fill |= await self._run(self._quick, lambda: self._choices(question))
        except HeavyliftError as error:
            # An address that names nothing we know: say so over the page as it starts.
            question = self._question({})
            fill |= {"question": question, "address_error": error}
            fill |= await self._run(self._quick, lambda: self._choices(question))
        fill |= await self._fill("plan", question, {})
        plan = fill.get("plan")
        fill["asked_context"] = question.context or (plan.context_tokens if plan else LEAST_CONTEXT)
        fill["asked_concurrency"] = question.concurrency or 1
        if plan is not None:
            fill["chosen_count"] = plan.rack.gpu_count
        for name in _WHOLE if "full" in request.query else ("speed",):
            fill["parts"][name] = await self._part(name, question, {})
        return self._html("planner.html", request, fill)

    async def part(self, request: web.Request) -> web.StreamResponse:
        """A part of the planner. What cannot be planned is a part that says why."""
        name = request.match_info["name"]
        if name not in _PARTS:
            raise web.HTTPNotFound
        try:
            question = self._question(request.query)
            html = await self._part(name, question, request.query)
        except HeavyliftError as error:
            html = self._failed(name, error)
        return web.Response(text=html, content_type="text/html")

    async def api(self, request: web.Request) -> web.StreamResponse:
        """The record behind a part, as JSON; 422 with the error where there is none."""
        name = request.match_info["name"]
        if name not in _PARTS:
            raise web.HTTPNotFound
        try:
            question = self._question(request.query)
            record = await self._record(name, question, request.query)
        except HeavyliftError as error:
            told = {"code": error.code, "params": error.params, "message": sentence(error)}
            return web.Response(
                status=422,
                body=msgspec.json.encode({"error": told}),
                content_type="application/json",
            )
        return web.Response(body=msgspec.json.encode(record), content_type="application/json")

    async def static(self, request: web.Request) -> web.StreamResponse:
        """The style, the script, the icon; their addresses change with the version."""
        name = request.match_info["name"]
        if name not in _TYPES:
            raise web.HTTPNotFound
        return web.Response(
            body=render.static(name),
            content_type=_TYPES[name],
            charset="utf-8",
            headers={"Cache-Control": "no-cache"},
        )

    # --- parts -----------------------------------------------------------------------------------

    async def _record(self, name: str, question: Question, query: Mapping[str, str]) -> Any:
        part = _PARTS[name]
        return await self._run(
            self._slow if part.is_slow else self._quick,
            lambda: part.record(self._planner, question, query),
        )

    async def _part(self, name: str, question: Question, query: Mapping[str, str]) -> str:
        fill = await self._fill(name, question, query)
        template = self._templates.get_template(f"part_{name}.html")
        return template.render(question=question, **fill)

    async def _fill(self, name: str, question: Question, query: Mapping[str, str]) -> Fill:
        try:
            record = await self._record(name, question, query)
        except HeavyliftError as error:
            return {"error": error}
        return {"error": None, **_PARTS[name].fill(self, question, record)}

    def _failed(self, name: str, error: HeavyliftError) -> str:
        template = self._templates.get_template(f"part_{name}.html")
        return template.render(question=None, error=error)

    def fill_plan(self, question: Question, plan: Plan) -> Fill:
        """What the parts about memory show."""
        rows = bars(plan)
        named = {term.source for term in plan.terms}
        found = {name: self._planner.source(name) for name in named}
        sources = {name: source for name, source in found.items() if source is not None}
        most = self._planner.knowledge(question.model).model.model.max_context.value
        return {
            "plan": plan,
            "bars": rows,
            "tips": [[render.tip(plan, bar, piece) for piece in bar.pieces] for bar in rows.bars],
            "rows": tuple(render.term_rows(plan, sources)),
            "keep": keep_text(plan.engine, plan.layout),
            "command": render.flag_groups(shlex.split(plan_command(plan.request))),
            "context_track": context_track(most),
            "concurrency_track": concurrency_track(),
        }

    def fill_fixes(self, _question: Question, fixes: Any) -> Fill:
        """The changes, each with the address it leads to."""
        return {"fixes": [(fix, of_command(fix.command).query()) for fix in fixes]}

    def fill_compare(self, question: Question, comparison: Any) -> Fill:
        """The rows, each with the address of its plan."""
        rows = [(row, _moved(question, row.plan.rack.label)) for row in comparison.rows]
        return {"comparison": comparison, "rows": rows}

    def fill_speed(self, _question: Question, curve: Any) -> Fill:
        """The chart of the band with the measured points on it."""
        chart = None if curve is None else speed_chart(curve, self._measured)
        return {"curve": curve, "chart": chart, "measured": self._measured}

    def fill_cost(self, _question: Question, decision: Any) -> Fill:
        """The chart of cost against use; none where nothing of one's own is priced."""
        priced = decision is not None and decision.options
        headers = [text("web.cost.use")]
        if priced:
            headers += [text(f"web.chart.{option.tenure}") for option in decision.options]
        return {
            "decision": decision,
            "chart": cost_chart(decision) if priced else None,
            "cost_headers": (*headers, text("web.chart.api")),
        }

    def fill_recipe(self, _question: Question, recipe: Any) -> Fill:
        """The engine's command of every rank, quoted for a shell."""
        ranks = recipe.launch.ranks if recipe.launch is not None else ()
        commands = [
            (rank.name, _exported(rank.env), render.flag_groups(argv))
            for rank, argv in zip(ranks, recipe.argv, strict=False)
        ]
        return {"recipe": recipe, "commands": commands}

    def fill_simulate(self, _question: Question, found: Any) -> Fill:
        """The three runs."""
        return {"found": found}

    # --- help ------------------------------------------------------------------------------------

    def _question(self, query: Mapping[str, str]) -> Question:
        said = dict(query)
        if "on" not in said and said.get("gpu") and said.get("gpus"):
            said["on"] = f"{said['gpus']}x{said['gpu']}"  # a form sent without the script
        return of_query(said, self._start.model, self._start.rack)

    def _choices(self, question: Question) -> Fill:
        choices = self._planner.choices(question)
        gpu, rack = self._planner.rack(question)
        more = tuple((name, question.written(name)) for name in _MORE)
        return {
            "choices": choices,
            "chosen_gpu": gpu.title,
            "chosen_count": None if rack is None else rack.gpu_count,
            "more": more,
            "more_said": any(value for _, value in more),
            "context_track": context_track(choices.most_context),
            "concurrency_track": concurrency_track(),
        }

    async def _run(self, executor: Executor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def _html(self, name: str, request: web.Request, fill: Fill) -> web.Response:
        fill = {"address_error": None, "path": request.path, "version": __version__, **fill}
        page = self._templates.get_template(name).render(query=request.query_string, **fill)
        return web.Response(text=page, content_type="text/html")


def _exported(env: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())


def _moved(question: Question, rack: str) -> str:
    return replace(question, on=rack, tp=None, pp=None, dp=None, ep=None, dcp=None).query()


Query = Mapping[str, str]
Record = Callable[[Planner, Question, Query], Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the page: how its record is made, and what its template is given."""

    record: Record
    fill: Callable[[Pages, Question, Any], Fill]
    is_slow: bool = False


def _plan_record(planner: Planner, question: Question, query: Query) -> Plan:
    keep = query.get("keep")
    return planner.plan_kept(question, keep) if keep else planner.plan(question)


def _cost_record(planner: Planner, question: Question, _query: Query) -> Any:
    return planner.cost(question, datetime.now(UTC).date())


def _of(ask: Callable[[Planner, Question], Any]) -> Record:
    """A record for which the question says it all."""
    return lambda planner, question, _query: ask(planner, question)


_PARTS: Final = {
    "plan": _Part(_plan_record, Pages.fill_plan),
    "fixes": _Part(_of(Planner.fixes), Pages.fill_fixes, is_slow=True),
    "compare": _Part(_of(Planner.compare), Pages.fill_compare, is_slow=True),
    "speed": _Part(_of(Planner.speed), Pages.fill_speed),
    "cost": _Part(_cost_record, Pages.fill_cost, is_slow=True),
    "recipe": _Part(_of(Planner.recipe), Pages.fill_recipe, is_slow=True),
    "simulate": _Part(_of(simulation), Pages.fill_simulate, is_slow=True),
}
"""By the name in the address, which its template also bears."""
_WHOLE: Final = ("speed", "fixes", "cost", "recipe")
