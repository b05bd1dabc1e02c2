"""Every screen and page in three languages: 80 cells wide, and no English prose in Chinese."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.unit.cli import english

from heavylift.cli.main import COMMANDS
from heavylift.locale import catalogue

PROGRAM = Path(__file__).with_name("every_screen.py")
CHINESE = catalogue.LANGUAGES[1:]

Screens = dict[str, dict[str, dict[str, str]]]


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The address of a scripted engine in a process of its own."""
    command = [sys.executable, "-m", "heavylift", "dev", "engine", "obliging"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def screens(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Screens:
    """By language and by what was asked: what was shown on both streams, or on a page."""
    folders = {each: tmp_path_factory.mktemp(each) for each in catalogue.LANGUAGES}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), language, str(folder), engine],
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
        )
        for language, folder in folders.items()
    ]
    assert [each.wait() for each in started] == [0] * len(started)
    return {
        language: json.loads((folder / "screens.json").read_text("utf-8"))
        for language, folder in folders.items()
    }


def _found(
    screens: dict[str, dict[str, str]], find: Callable[[str], Iterable[str]], *streams: str
) -> list[tuple[str, str]]:
    return [
        (asked, found)
        for asked, shown in screens.items()
        for stream in streams
        for found in find(shown.get(stream, ""))
    ]


@pytest.mark.parametrize("language", catalogue.LANGUAGES)
def test_no_screen_is_wider_than_80_cells(screens: Screens, language: str) -> None:
    """Help, results, errors of every code and mistakes; what is there to be copied stays whole."""
    assert _found(screens[language], english.too_wide, "out", "err") == []


@pytest.mark.parametrize("language", CHINESE)
def test_no_chinese_screen_or_page_holds_english_prose(screens: Screens, language: str) -> None:
    """Names, flags, units, code and what others said stay as they are; sentences do not."""
    assert _found(screens[language], english.prose, "out", "err", "page") == []


@pytest.mark.parametrize("language", CHINESE)
def test_no_text_of_ours_stands_in_english_in_chinese(screens: Screens, language: str) -> None:
    """Not one of the catalogue, and not a note, title or fix of the facts."""
    found = _found(
        screens[language], lambda shown: english.ours(shown, language), "out", "err", "page"
    )
    assert found == []


def test_the_screens_are_those_of_every_command(screens: Screens) -> None:
    """The help of each, and a screen of nearly all; none of them shows nothing."""
    for language, shown in screens.items():
        assert {f"{name} --help" for name in COMMANDS} <= set(shown)
        first = {asked.split()[0] for asked, each in shown.items() if "--help" not in asked}
        # These start an engine, a server or a walk through both; their words are errors' or help's.
        assert set(COMMANDS) - first <= {
            "import", "rehearse", "supervise", "quality", "gateway", "demo",
        }  # fmt: skip
        assert [asked for asked, each in shown.items() if not "".join(each.values()).strip()] == []
        has_chinese = any("\u4e00" <= sign <= "\u9fff" for sign in shown["--help"]["out"])
        assert has_chinese is not (language == catalogue.ENGLISH)


@pytest.mark.parametrize(
    ("shown", "is_found"),
    [
        ("公式：58 组张量", False),
        ("公式：the tensors of each layer", True),
        ("来源：vLLM 源码 read from a wheel", True),
        ("下一步：heavylift plan kimi-k3 --on 8xB300", False),
        ("Kimi-K3 · MXFP4 专家 · vLLM 0.29.0 · tp8", False),
        ("没有名为 'a b c d' 的模型", False),
        ("回答是 `print the list of names`", False),
        ("其余 experts and rest", True),
    ],
)
def test_the_detector_tells_prose_from_names(shown: str, is_found: bool) -> None:
    """Three words in a row or a word of grammar, outside of commands and quotations."""
    assert bool(list(english.prose(shown))) is is_found


def test_the_detector_finds_a_text_of_the_facts() -> None:
    """However many words it has, and however it is broken over lines."""
    assert list(english.ours("Kimi-K3 · MXFP4 experts,\n   bf16 rest · tp8", "zh_Hans"))
