"""Heavylift: from a model and a rack of GPUs to a proven OpenAI-compatible service.

The packages tell the story in order: `facts` and `checkpoint` say what is known, `plan` accounts
for every byte, `recipe` turns a plan into files and commands, `launch` starts and watches the
engine. `cli` is the only place that speaks to a person.

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
