"""The facts that recipes are made from, each read when it is needed."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from functools import cached_property

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.command_schema import CommandEngines, CommandModelFacts
from heavylift.facts.consistency import name_key
from heavylift.facts.serving_schema import ServingEngine
from heavylift.lint.case import name_key as spelling_key
from heavylift.plan.planner import Knowledge
from heavylift.planning import Planning
from heavylift.recipe.flags import FlagTable
from heavylift.recipe.job import Job
from heavylift.reciping.wish import RecipeWish
from heavylift.records.plan import Plan


class Shelf:
    """A catalogue, a planner, and flag tables by name."""

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self.planning = Planning(self.catalog)
        self._tables: dict[str, FlagTable] = {}

    def engine(self, name: str) -> str:
        """The id of the engine of that name. Raises REC020 with those that are known."""
        wanted = name_key(name)
        for identifier in self.catalog.serving_ids():
            facts = self.catalog.serving(identifier)
            if wanted in map(name_key, (identifier, facts.title, *facts.names)):
                return identifier
        raise HeavyliftError(
            "REC020", {"name": name, "known": ", ".join(self.catalog.serving_ids())}
        )

    def serving(self, engine: str) -> ServingEngine:
        """How an engine is started."""
        return self.catalog.serving(engine)

    def table(self, name: str) -> FlagTable:
        """The flag table of that name."""
        if name not in self._tables:
            self._tables[name] = FlagTable(self.catalog.flags(name))
        return self._tables[name]

    def router(self, serving: ServingEngine) -> FlagTable | None:
        """The flag table of the router that goes in front of an engine."""
        return None if serving.router is None else self.table(serving.router)

    def job(
        self,
        wish: RecipeWish,
        knowledge: Knowledge,
        engine: str,
        plan: Plan,
        derived: Mapping[str, str],
    ) -> Job:
        """Everything a launch is made from. Raises REC016 for a version whose names were not read:
        flags, or the keys of a file of settings where the engine takes one.
        """
        serving = self.serving(engine)
        table = self.table(serving.table)
        version = serving.table_versions.get(plan.engine_version, plan.engine_version)
        if version not in table.read_whole:
            raise HeavyliftError(
                "REC016",
                {
                    "engine": serving.title,
                    "version": plan.engine_version,
                    "read": ", ".join(serving.table_versions or table.read_whole),
                },
            )
        machine = knowledge.machines[plan.rack.gpu]
        model = knowledge.model.model
        recipes = knowledge.model.book.recipes
        return Job(
            engine=engine,
            plan=plan,
            gpu=machine.gpu,
            node=machine.node,
            model=model,
            serving=serving,
            command=next(each for each in self._commands.engines if each.id == serving.command),
            table=table,
            table_version=version,
            common=self.catalog.serving_common(),
            recipes=tuple(recipe for recipe in recipes if recipe.engine == engine),
            changes=self.catalog.name_changes(),
            naming=self._naming(model.id, model.names),
            start=wish.start,
            replicas=wish.replicas,
            derived=derived,
        )

    @cached_property
    def _commands(self) -> CommandEngines:
        return self.catalog.command_engines()

    def _naming(self, model: str, names: tuple[str, ...]) -> CommandModelFacts | None:
        """What commands must say of a model, found as the linter finds it: by its name."""
        models = self.catalog.command_models().models
        named = [each for each in models if each.plans_as == model]
        for name in (*names, model):
            key = spelling_key(name)
            named += [
                each
                for each in models
                if any(fnmatch.fnmatchcase(key, pattern) for pattern in each.patterns)
            ]
        return next(iter(named), None)
