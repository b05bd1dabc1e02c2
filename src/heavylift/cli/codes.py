"""The page of an error code: its sentence, where it comes from, its exit status, what to do."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Final

from heavylift.cli.text import keys, text
from heavylift.errors import HeavyliftError
from heavylift.locale import catalogue

_CODE: Final = re.compile(r"[A-Z]{2,4}\d{3}")

_NEXT: Final = {
    "FACT": "heavylift facts",
    "CKPT": "heavylift checksum DIR",
    "HUB": "heavylift inspect DIR",
    "REC": "heavylift recipe MODEL --on RACK --explain",
    "LINT": "heavylift lint FILE",
    "PRE": "heavylift doctor --collect FILE",
    "ENV": "heavylift doctor",
    "RUN": "heavylift diagnose --last",
    "OPS": "heavylift status",
    "VER": "heavylift verify URL --only basics.models",
    "BAT": "heavylift batch status DIR",
    "GW": "heavylift keys list",
    "WIRE": "heavylift status",
    "STA": "heavylift status",
    "DEV": "heavylift dev --help",
    "DIA": "heavylift diagnose --symptom stuck",
    "PLAN": "heavylift plan kimi-k3 --on 8xMI355X",
}
"""Stage -> what to type next where the code has nothing better."""

_NEXT_OF_CODE: Final = {
    "ENV025": "heavylift engine install embedded --from WHEEL_DIR",
    "ENV027": "heavylift engine install embedded",
    "ENV042": "heavylift variants MODEL",
    "GW040": "heavylift keys rotate NAME",
    "GW043": "heavylift keys create NAME --model MODEL",
    "GW050": "heavylift usage",
    "GW060": "heavylift status",
    "GW061": "heavylift diagnose --last",
    "GW062": "heavylift diagnose --last",
    "PLAN031": "heavylift variants MODEL",
    "PLAN073": "heavylift fit --on RACK",
    "REC047": "heavylift recipe MODEL --on RACK -o DIR",
    "REC105": "heavylift recipe MODEL --on RACK --target shell",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorPage:
    """What there is to say about an error code, in the language in use.

    `sentence` holds its parameters in braces. `next_command` is None where nothing is to be typed.
    """

    code: str
    sentence: str
    parameters: tuple[str, ...]
    stage: str
    exit_status: int
    exit_meaning: str
    advice: str
    next_command: str | None


def codes() -> tuple[str, ...]:
    """Every code there is, in order."""
    named = (key.removeprefix("error.") for key in keys() if key.startswith("error."))
    return tuple(sorted(name for name in named if _CODE.fullmatch(name)))


def looks_like_code(word: str) -> bool:
    """True for a word that can only be meant as a code."""
    return _CODE.fullmatch(word.upper()) is not None


def page(code: str) -> ErrorPage | None:
    """The page of a code; None when there is no such code."""
    if f"error.{code}" not in keys():
        return None
    stage = code.rstrip("0123456789")
    sentence = catalogue.template(f"error.{code}")
    named = (name for _, name, _, _ in string.Formatter().parse(sentence) if name)
    status = int(HeavyliftError(code).exit_status)
    own = f"codes.advice.{code}"
    return ErrorPage(
        code=code,
        sentence=re.sub(r"\{(\w+):[^{}]*\}", r"{\1}", sentence)
        .replace("{{", "{")
        .replace("}}", "}"),
        parameters=tuple(dict.fromkeys(named)),
        stage=text(f"codes.stage.{stage}"),
        exit_status=status,
        exit_meaning=text(f"codes.status.{status}"),
        advice=text(own if own in keys() else f"codes.advice.{stage}"),
        next_command=_NEXT_OF_CODE.get(code, _NEXT.get(stage)),
    )


def lookup(code: str) -> str:
    """The command that shows the page of a code."""
    return f"heavylift explain {code}"
