"""What holds for every recipe, whatever the engine, the card and the layout."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from heavylift.facts.catalog import Catalog
from heavylift.linting import Linting
from heavylift.recipe.flags import FlagTable, Presence
from heavylift.records.finding import Severity
from heavylift.records.launch import LaunchSpec, RankSpec, host_tokens, resolve
from heavylift.records.plan import Capacity, PlanVerdict, Status
from heavylift.records.recipe import Recipe


def _kept() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kept", Path(__file__).with_name("kept.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kept"] = module
    spec.loader.exec_module(module)
    return module


WRITTEN: tuple[tuple[str, str, str, dict[str, Any]], ...] = _kept().WRITTEN
Make = Callable[..., Recipe]

ROUTERS = ("vllm-router", "smg")
SECRET = re.compile(r"(?i)(?:^|[-_])(?:api[-_]?key|token|password|secret)$")


def _id(case: tuple[str, str, str, dict[str, Any]]) -> str:
    model, rack, engine, given = case
    return "-".join((engine, model, rack, *map(str, given))).replace(" ", "")


@pytest.fixture(scope="session")
def made(make_recipe: Make) -> Callable[[Any], Recipe]:
    """Each case made once."""
    done: dict[str, Recipe] = {}

    def get(case: tuple[str, str, str, dict[str, Any]]) -> Recipe:
        model, rack, engine, given = case
        key = repr(case)
        if key not in done:
            done[key] = make_recipe(model, rack, engine, **given)
        return done[key]

    return get


@pytest.fixture(scope="session")
def linting() -> Linting:
    """One linter for the run."""
    return Linting()


every = pytest.mark.parametrize("case", WRITTEN, ids=_id)


def _spec(recipe: Recipe) -> LaunchSpec:
    assert recipe.launch is not None, recipe.refused
    return recipe.launch


def _at(rank: RankSpec, spec: LaunchSpec) -> RankSpec:
    """The rank with addresses as a rack would have them."""
    hosts = {each.name: f"10.0.0.{number + 1}" for number, each in enumerate(spec.ranks)}
    return resolve(rank, hosts, "/etc/heavylift")


@every
def test_the_linter_has_nothing_to_say(
    case: Any, made: Callable[[Any], Recipe], linting: Linting
) -> None:
    """What is written is what the linter accepts: nothing above a remark."""
    recipe = made(case)
    spec = _spec(recipe)
    said = set()
    for rank in spec.ranks:
        placed = _at(rank, spec)
        words = [f"{name}={shlex.quote(value)}" for name, value in placed.env.items()]
        plan = recipe.plans.get(rank.role, recipe.plan)
        report = linting.lint(
            " ".join((*words, shlex.join(placed.argv))),
            rack=plan.rack.label,
            version=recipe.engine_version,
        )
        loud = (Severity.FAIL, Severity.WARN)
        said |= {(f.rule, f.subject) for f in report.findings if f.severity in loud}
    assert not said


def _tables(recipe: Recipe, catalog: Catalog) -> tuple[FlagTable, str]:
    serving = catalog.serving(recipe.engine)
    version = serving.table_versions.get(recipe.engine_version, recipe.engine_version)
    return FlagTable(catalog.flags(serving.table)), version


def _flags(words: tuple[str, ...]) -> Iterator[str]:
    for word in words:
        if re.fullmatch(r"--?[A-Za-z][\w-]*", word):
            yield word


@every
def test_every_flag_is_one_the_version_has(case: Any, made: Callable[[Any], Recipe]) -> None:
    """In the table of flags for that version of the engine, or of the router."""
    recipe, catalog = made(case), Catalog()
    table, version = _tables(recipe, catalog)
    for rank in _spec(recipe).ranks:
        if rank.role == "store":
            continue
        here, at = table, version
        if rank.argv[0] in ROUTERS:
            here = FlagTable(catalog.flags(rank.argv[0]))
            at = here.newest
        for flag in _flags(rank.argv[1:]):
            if flag == "-m":  # Python's own
                continue
            found = here.flag(flag)
            assert found is not None, flag
            assert here.flag_presence(found.name, at) is Presence.PRESENT, flag


@every
def test_every_word_has_its_reason_and_source(case: Any, made: Callable[[Any], Recipe]) -> None:
    """Each flag and variable stands among the settings, with why and from where."""
    spec = _spec(made(case))
    told = {setting.name for setting in spec.settings}
    for rank in spec.ranks:
        if rank.role == "store":
            continue
        assert {flag for flag in _flags(rank.argv[1:]) if flag != "-m"} <= told
        assert set(rank.env) <= told
    assert all(setting.why and setting.source and setting.origin for setting in spec.settings)


@every
def test_every_rank_appears_once(case: Any, made: Callable[[Any], Recipe]) -> None:
    """One process per machine of each pool and replica, numbered and named without gaps."""
    recipe = made(case)
    spec = _spec(recipe)
    names = [rank.name for rank in spec.ranks]
    assert len(set(names)) == len(names)
    assert [rank.rank for rank in spec.ranks] == list(range(len(spec.ranks)))
    replicas = case[3].get("replicas", 1)
    for role, plan in recipe.plans.items():
        mine = [rank for rank in spec.ranks if rank.role == role]
        assert len(mine) == plan.rack.nodes * replicas
        assert sum(rank.gpus or 0 for rank in mine) == plan.rack.gpu_count * replicas
    asked = {name for rank in spec.ranks for word in rank.argv for name in host_tokens(word)}
    assert asked <= {*names, "self"}


@every
def test_what_is_written_fits_or_ran(case: Any, made: Callable[[Any], Recipe]) -> None:
    """The plan holds it, or a source says that exactly this ran and the contradiction is shown."""
    recipe = made(case)
    for plan in recipe.plans.values():
        assert plan.verdict not in (PlanVerdict.DOES_NOT_FIT, PlanVerdict.UNSUPPORTED)
        if plan.capacity_verdict is Capacity.DOES_NOT_FIT:
            assert plan.support.status in (Status.VERIFIED, Status.REPORTED)
            assert "plan_disagrees" in {note.code for note in _spec(recipe).notes}


@every
def test_no_secret_is_in_a_command(case: Any, made: Callable[[Any], Recipe]) -> None:
    """Keys are named, never written: no flag and no variable of theirs has a value."""
    for rank in _spec(made(case)).ranks:
        assert not [flag for flag in _flags(rank.argv) if SECRET.search(flag)]
        assert not [name for name in rank.env if SECRET.search(name)]


@every
def test_the_same_request_makes_the_same_bytes(
    case: Any, made: Callable[[Any], Recipe], make_recipe: Make
) -> None:
    """Nothing of the day, of chance or of this machine is in a launch."""
    model, rack, engine, given = case
    again = make_recipe(model, rack, engine, **given)
    first = msgspec.json.encode(_spec(made(case)), order="deterministic")
    assert msgspec.json.encode(_spec(again), order="deterministic") == first


@every
def test_one_deadline_is_written_everywhere(case: Any, made: Callable[[Any], Recipe]) -> None:
    """The launch, its health check and the engine's own words say the same number of seconds."""
    recipe = made(case)
    spec = _spec(recipe)
    assert spec.health is not None
    assert spec.health.start_period_s == spec.deadline_s
    facts = Catalog().serving(recipe.engine)
    said = {setting.value for setting in spec.settings if setting.why == "deadline"}
    assert said <= {str(spec.deadline_s)}
    if facts.deadline_variables or facts.deadline_flags:
        assert said
