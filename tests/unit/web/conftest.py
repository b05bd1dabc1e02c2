"""The pages over the shipped facts, in memory: requests without a socket of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from heavylift.locale import catalogue
from heavylift.web.planner import Planner
from heavylift.web.serve import Settings, running


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Site:
    """A running site for one test: every call starts it, asks, and ends it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def ask(self, *paths: str, method: str = "GET", **headers: str) -> list[Answer]:
        """The answers to paths, in order, with no redirect followed."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}

        async def asked(session: aiohttp.ClientSession, base: str) -> list[Answer]:
            answers = []
            for path in paths:
                url = f"{base}{path}"
                async with session.request(
                    method, url, headers=sent, allow_redirects=False
                ) as response:
                    text = await response.text()
                    answers.append(Answer(response.status, text, dict(response.headers)))
            return answers

        return self._inside(asked)

    def get(self, path: str, **headers: str) -> Answer:
        """The answer to one path."""
        return self.ask(path, **headers)[0]

    def _inside(
        self, work: Callable[[aiohttp.ClientSession, str], Awaitable[list[Answer]]]
    ) -> list[Answer]:
        async def main() -> list[Answer]:
            async with running(self._settings) as port, aiohttp.ClientSession() as session:
                return await work(session, f"http://127.0.0.1:{port}")

        return asyncio.run(main())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of heavylift's own for one test."""
    monkeypatch.setenv("HEAVYLIFT_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def site(home: Path) -> Site:
    """The pages with nothing to watch."""
    return Site(Settings(port=0, gateway=home / "gateway"))


@pytest.fixture(scope="session")
def planner() -> Planner:
    """A planner over the shipped facts."""
    return Planner()


@pytest.fixture(autouse=True)
def speak_english_again() -> Iterator[None]:
    """A test leaves no language behind."""
    yield
    catalogue.use(catalogue.ENGLISH)
