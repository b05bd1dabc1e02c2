"""Rehearsing a recipe: its own command, image and layout, with weights that the engine invents."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.serving_schema import RehearsalFacts
from heavylift.launch.job import Hooks, Job, Measured, Proof, Ready
from heavylift.launch.supervisor import Supervisor, new_run
from heavylift.operate import memory, preparation, recipes, secret_file
from heavylift.operate.explain import Explaining
from heavylift.operate.recipes import Recipe
from heavylift.plan.receipts import WORKLOAD_LAYERS
from heavylift.recipe.rehearsal import LayerField, layer_field, rehearsed
from heavylift.records.deployment import Deployment, RunState
from heavylift.records.finding import Finding
from heavylift.records.launch import LaunchSpec
from heavylift.records.receipt import Receipt
from heavylift.records.rehearsal import PhaseTime, Rehearsal
from heavylift.state import paths
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.telemetry.engine_log import EngineWords
from heavylift.wire.client import Endpoint, Limits, ask
from heavylift.wire.failures import Failure as WireFailure
from heavylift.wire.reply import ChatRequest

LAYERS: Final = 4
_VISION: Final = "vision_layers"
_LAYERS_DIM: Final = "layers"
_CONFIG: Final = "config.json"
_FOLDER: Final = "rehearsals"
_KEPT: Final = 6
_TOKENS: Final = 24
_WAIT_S: Final = 600.0

_NEVER: Final = ("quality", "routing", "load_time")
_CUT: Final = ("full_memory", "kv_tokens", "graphs")
"""What a rehearsal cannot tell; and what one with fewer layers cannot."""

_TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_FORMED: Final = frozenset(
    {None, WireFailure.EMPTY, WireFailure.TRUNCATED_THINKING, WireFailure.TOOL_CALLS_LOST}
    | {WireFailure.TOOL_ARGUMENTS_INVALID, WireFailure.MARKER_LEAK}
)
"""What an answer of invented weights may be: any words, but in well-formed chunks."""

OnChange = Callable[[RunState], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearseWish:
    """What to rehearse. `layers` None = all of them."""

    folder: Path
    layers: int | None = LAYERS
    name: str | None = None
    secrets: Path | None = None
    hosts: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    target: str | None = None


def rehearse(wish: RehearseWish, on_change: OnChange) -> Rehearsal:
    """Start the recipe with invented weights, ask it, stop it; what that showed.

    Raises REC052 for an engine that cannot start without weights, what reading a recipe raises,
    and REC053 where the model's config does not say its layers.
    """
    catalog = Catalog()
    recipe = recipes.read(wish.folder)
    facts = facts_of(catalog, recipe.spec)
    notes: list[str] = []
    where = None if wish.layers is None else _where(catalog, recipe, wish.layers, notes)
    layers = wish.layers if where is None else max(wish.layers or 1, _stages(recipe))
    name = recipes.name_of(wish.name, recipe.spec)
    folder = _new_folder(name)
    kept = recipes.copy(wish.folder, folder / "recipe")
    spec = rehearsed(recipe.spec, facts, layers=layers, where=where)
    recipes.rewrite(kept, spec)
    preparation.place(kept, name=f"{name}-rehearsal", target=wish.target, hosts=wish.hosts)
    placed = replace(
        recipe, spec=recipes.read(kept).spec, rules=replace(recipe.rules, restart_limit=0)
    )
    run = _Rehearsing(catalog, placed, wish=wish, name=name, folder=folder, on_change=on_change)
    rehearsal = run.run(layers, recipe.digest)
    rehearsal = replace(rehearsal, image=recipe.spec.image, notes=tuple(notes))
    return _keep(rehearsal, folder)


def facts_of(catalog: Catalog, spec: LaunchSpec) -> RehearsalFacts:
    """How the engine of a launch starts without weights. Raises REC052 when no way is known."""
    facts = catalog.serving(spec.engine).rehearsal if spec.engine in catalog.serving_ids() else None
    if facts is None:
        known = (each for each in catalog.serving_ids() if catalog.serving(each).rehearsal)
        raise HeavyliftError("REC052", {"engine": spec.engine, "known": ", ".join(sorted(known))})
    return facts


class _Rehearsing:
    """One start with invented weights."""

    def __init__(
        self,
        catalog: Catalog,
        recipe: Recipe,
        *,
        wish: RehearseWish,
        name: str,
        folder: Path,
        on_change: OnChange,
    ) -> None:
        self._catalog = catalog
        self._recipe = recipe
        self._wish = wish
        self._name = name
        self._folder = folder
        self._on_change = on_change
        self._began_s = time.monotonic()
        self._phases: list[PhaseTime] = []
        self._figures: dict[str, float] = {}
        self._receipt: Receipt | None = None
        self._findings: tuple[Finding, ...] = ()
        self._reason: str | None = None
        self._supervisor: Supervisor | None = None

    def run(self, layers: int | None, digest: str) -> Rehearsal:
        """Start, ask, stop."""
        spec = self._recipe.spec
        secrets = secret_file.read(
            secret_file.prepare(paths.deployment_dir(self._name), spec, self._wish.secrets)
        )
        deployment = Deployment(
            name=f"{self._name}-rehearsal",
            wanted="up",
            release=0,
            model=spec.served_name or spec.model,
            engine=spec.engine,
            ssh=self._wish.ssh,
        )
        job = Job(
            deployment=deployment,
            spec=spec,
            plan=self._recipe.plan,
            folder=self._folder,
            secrets=secrets,
            rules=self._recipe.rules,
            metrics=self._catalog.metric_names(),
            words=EngineWords(self._catalog.engine_logs(), spec.engine),
            restarts=self._catalog.restarts(),
            recipe_folder=self._folder / "recipe",
            ways=preparation.ways(self._catalog, self._folder / "recipe", spec),
        )
        run = new_run(deployment, self._folder)
        self._layers = layers
        supervisor = Supervisor(
            job,
            run,
            Hooks(
                explain=Explaining(self._catalog, self._recipe).explain,
                measure=self._measure,
                save=self._changed,
                judged=self._judged,
                prove=self._prove,
            ),
        )
        self._supervisor = supervisor
        began_at = datetime.now(UTC).isoformat(timespec="seconds")
        end = supervisor.run()
        return Rehearsal(
            name=self._name,
            model=spec.model,
            engine=spec.engine,
            engine_version=spec.engine_version,
            recipe_digest=digest,
            layers=layers,
            passed=end.verdict == "pass",
            started_at=began_at,
            seconds=round(time.monotonic() - self._began_s, 3),
            ready_s=end.ready_s,
            phases=tuple(self._phases),
            reason=self._reason,
            failure=None if end.verdict == "pass" else end.failure,
            findings=self._findings,
            figures=self._figures,
            receipt=self._receipt,
            log=end.processes[0].log if end.processes else None,
            untold=(*_NEVER, *(_CUT if layers is not None else ())),
        )

    def _changed(self, run: RunState) -> None:
        phase = str(run.phase)
        if not self._phases or self._phases[-1].phase != phase:
            at_s = round(time.monotonic() - self._began_s, 3)
            self._phases.append(PhaseTime(phase=phase, at_s=at_s))
        self._on_change(run)

    def _measure(self, ready: Ready) -> Measured:
        self._figures = ready.attempt.figures()
        book = self._catalog.engine_logs()
        measured = memory.measure(self._recipe, ready.attempt, ready.logs[0], book=book)
        receipt = measured.receipt
        if receipt is not None and self._layers is not None:
            # Of a part of the network: a plan of the whole takes it for floors.
            receipt = replace(receipt, workload={**receipt.workload, WORKLOAD_LAYERS: self._layers})
        self._receipt = receipt
        self._findings = measured.findings if self._layers is None else ()
        return Measured()

    def _prove(self, ready: Ready) -> Proof:
        """Streamed and with a tool offered: the parsers run, whatever the words are."""
        request = ChatRequest(
            model=ready.model,
            messages=({"role": "user", "content": "Look up the word harbour."},),
            max_tokens=_TOKENS,
            extra={"temperature": 0},
        )
        limits = Limits(first_byte_s=_WAIT_S, gap_s=_WAIT_S)
        endpoint = Endpoint.parse(ready.url, ready.key or None)
        plain = ask(endpoint, request, limits=limits)
        if plain.failure not in _FORMED:
            self._reason = f"stream: {plain.failure}"
            return Proof(verdict="fail", reasons=(self._reason,))
        offered = replace(request, extra={"temperature": 0, "tools": [_TOOL]})
        tools = ask(endpoint, offered, limits=limits)
        # A server without a parser for tools refuses them in order: the recipe wants none.
        if tools.failure not in _FORMED | {WireFailure.BAD_REQUEST}:
            self._reason = f"tools: {tools.failure}"
            return Proof(verdict="fail", reasons=(self._reason,))
        return Proof(verdict="pass")

    def _judged(self, _run: RunState, _proof: Proof) -> None:
        if self._supervisor is not None:
            self._supervisor.stop_asked = True


# --- parts -------------------------------------------------------------------------------------


def _where(catalog: Catalog, recipe: Recipe, layers: int, notes: list[str]) -> LayerField | None:
    """Where the model's config states its layers. Raises REC053 when nobody knows."""
    spec = recipe.spec
    config = _config(spec)
    described = "text_config.num_hidden_layers|num_hidden_layers"
    has_vision = False
    try:
        model = catalog.model(spec.model if recipe.plan is None else recipe.plan.model)
    except HeavyliftError:
        if config is None:
            raise HeavyliftError("REC053", {"field": described}) from None
        kind = config.get("model_type")
        family = catalog.family_for_hf_type(kind) if isinstance(kind, str) else None
    else:
        family = catalog.family(model.family)
        has_vision = _VISION in model.dims
        if config is None:
            notes.append("config_not_at_hand")
    if family is not None:
        described = family.config_dims.get(_LAYERS_DIM, described)
    return layer_field(described, config, has_vision=has_vision, layers=layers)


def _config(spec: LaunchSpec) -> dict[str, Any] | None:
    """The config of the model where it lies on this machine; None elsewhere."""
    places = [spec.model_path, None if spec.model_mount is None else spec.model_mount.source]
    for place in places:
        if place is None:
            continue
        try:
            found = json.loads((Path(place) / _CONFIG).read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _stages(recipe: Recipe) -> int:
    return 1 if recipe.plan is None else recipe.plan.layout.pipeline_parallel_size


def _new_folder(name: str) -> Path:
    """A folder of its own; of those before it the newest few are left."""
    root = paths.deployment_dir(name) / _FOLDER
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in sorted(root.iterdir())[: -_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)
    folder = root / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    folder.mkdir(mode=0o700)
    return folder


def _keep(rehearsal: Rehearsal, folder: Path) -> Rehearsal:
    if rehearsal.receipt is not None:
        path = folder / "receipt.json"
        path.write_bytes(msgspec.json.encode(rehearsal.receipt))
        with open_deployments(deployments_path()) as store:
            digest = store.save_receipt(rehearsal.receipt)
        rehearsal = replace(rehearsal, receipt_digest=digest, receipt_file=str(path))
    (folder / "rehearsal.json").write_bytes(msgspec.json.encode(rehearsal))
    return rehearsal
