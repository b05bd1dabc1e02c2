"""The embedded engine as installed here: a launch of it, and its own forecast for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from heavylift.launch import engine_env
from heavylift.launch.runner import run_to_end
from heavylift.recipe.engines import embedded
from heavylift.recipe.engines.embedded import EmbeddedSettings
from heavylift.records.launch import LaunchSpec
from heavylift.telemetry.llamacpp import FitProjection, parse_fit

CHILD: Final = Path(__file__).with_name("embedded_child.py")
_FIT_TIMEOUT_S: Final = 120.0


def launch(settings: EmbeddedSettings, *, plan_digest: str) -> LaunchSpec:
    """The launch of `settings` with the installed engine. Raises ENV027 when there is none."""
    return embedded.launch_spec(
        settings, python=_python(), child=str(CHILD), plan_digest=plan_digest
    )


def forecast(
    settings: EmbeddedSettings, *, log: Path, timeout_s: float = _FIT_TIMEOUT_S
) -> FitProjection:
    """What llama.cpp itself says it would take, without reading a weight: the planner's oracle.

    Its recurrent state is really allocated while it works that out. Raises ENV027 when the engine
    is not installed, RUN011 and RUN012 when it fails or hangs, RUN020 when it prints no table.
    """
    argv = embedded.fit_argv(settings, python=_python(), child=str(CHILD))
    return parse_fit(run_to_end(argv, log=log, timeout_s=timeout_s))


def _python() -> str:
    return str(engine_env.engine_python(engine_env.require_installed()))
