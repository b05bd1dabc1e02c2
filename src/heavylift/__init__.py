"""Heavylift: from a model and a rack of GPUs to a proven OpenAI-compatible service.

Each line may import the lines above it, and no other part of its own line (`make imports`):

    pictures                            pictures with a known content
    units errors stats media redact     what everything may use
    slo traffic                         objectives; traffic, recorded or made up
    records                             what parts hand to one another and `--json` shows
    facts                               what is known, with its source
    checkpoint                          what the files of a model really hold
    inspecting                          a checkpoint wherever it lies
    plan                                every byte of every rank; speed; money
    planning                            the planner with its facts
    simulate                            fleets in simulated time
    simulating                          their runs, in processes of this machine
    recipe                              a plan as commands and files
    lint                                what is wrong with commands found elsewhere
    linting reciping importing          both with their facts; results of other planners
    wire telemetry state                spoken with engines; read of machines; kept on disk
    locale                              every text, by its key
    devserver                           scripted engines
    fetch preflight launch diagnose verify bench quality observe golive batch gateway
                                        the stages
    operate demo api                    stages put together
    web                                 pages
    cli                                 the command line

A name in -ing is the pure package of that name with its facts loaded and its files read.

From Python: `heavylift.plan(…)`, `compare`, `lint`, `diagnose`, which are those of `heavylift.api`.
"""

import importlib as _importlib
import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any as _Any

__version__ = "0.1.0"

_STAGES = frozenset({"plan", "lint", "diagnose"})
"""Functions of the API that are called as a package is: that package can be called."""
_FUNCTIONS = frozenset({"compare", "Workload"})


class _Stage(_ModuleType):
    def __call__(self, *args: _Any, **given: _Any) -> _Any:
        api = _importlib.import_module("heavylift.api")
        return getattr(api, self.__name__.rpartition(".")[2])(*args, **given)


class _Heavylift(_ModuleType):
    # The import system binds a package to its parent: that is when it becomes callable.
    def __setattr__(self, name: str, value: object) -> None:
        if name in _STAGES and type(value) is _ModuleType:
            value.__class__ = _Stage
        super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Heavylift


def __getattr__(name: str) -> _Any:
    # Loaded when asked for: importing heavylift itself costs nothing.
    if name in _STAGES:
        return _importlib.import_module(f"heavylift.{name}")
    if name in _FUNCTIONS:
        return getattr(_importlib.import_module("heavylift.api"), name)
    raise AttributeError(name)
