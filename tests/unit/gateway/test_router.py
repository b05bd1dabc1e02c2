"""A router behind the gateway: its command is a fact, and it lives as long as the gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.gateway.router import RouterPlan, plan_router, routing_through

ENGINES = (("http://127.0.0.1:1", "http://127.0.0.1:2"), ("http://127.0.0.1:3",))
LISTENER = """
import http.server, os, sys
print(sorted(name for name in os.environ if name.startswith("HEAVYLIFT")), flush=True)
port = int(sys.argv[sys.argv.index("--port") + 1])
handler = http.server.BaseHTTPRequestHandler
http.server.ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with something in the place of every router."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in Catalog().ids("routers"):
        program = folder / name
        program.write_text(f"#!{sys.executable}\n{LISTENER}", "utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("name", Catalog().ids("routers"))
def test_the_command_names_every_engine_and_listens_here_only(programs: Path, name: str) -> None:
    """And holds no key: those who may look at processes must not find one."""
    plan = plan_router(name, *ENGINES)
    assert plan.argv[0] == str(programs / name)
    prefill = [b for a, b in zip(plan.argv, plan.argv[1:], strict=False) if a == "--prefill"]
    decode = [b for a, b in zip(plan.argv, plan.argv[1:], strict=False) if a == "--decode"]
    assert (prefill, decode) == (list(ENGINES[0]), list(ENGINES[1]))
    assert plan.argv[plan.argv.index("--host") + 1] == "127.0.0.1"
    assert plan.argv[plan.argv.index("--port") + 1] == plan.url.rpartition(":")[2]
    assert plan.argv[plan.argv.index("--prometheus-host") + 1] == "127.0.0.1"
    assert not any("key" in word for word in plan.argv)


def test_a_router_that_is_not_there_is_said_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known and not installed, or not known."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HeavyliftError, match="GW017") as missing:
        plan_router("smg", *ENGINES)
    assert missing.value.hint_command == "pip install smg==1.13.0"
    with pytest.raises(HeavyliftError, match="GW016"):
        plan_router("no-such-router", *ENGINES)


@pytest.mark.parametrize(("prefill", "decode"), [((), ("http://x",)), (("http://x",), ())])
def test_both_kinds_of_engine_are_needed(
    programs: Path, prefill: tuple[str, ...], decode: tuple[str, ...]
) -> None:
    """One kind alone is a usual upstream."""
    assert programs.is_dir()
    with pytest.raises(HeavyliftError, match="GW008"):
        plan_router("smg", prefill, decode)


def test_a_router_that_ends_is_started_again_and_ends_with_the_gateway(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same port; what is the gateway's own in the environment does not reach it."""
    assert programs.is_dir()
    monkeypatch.setenv("HEAVYLIFT_GATEWAY_DATABASE", "postgresql://u:secret@h/d")
    plan = plan_router("smg", *ENGINES)
    port = int(plan.url.rpartition(":")[2])

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async def again(first: int) -> bool:
        return _children(plan) not in ([], [first]) and await listens()

    async def main() -> None:
        async with routing_through(plan, tmp_path / "state"):
            (first,) = _children(plan)
            os.kill(first, 9)
            while not await again(first):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        assert not _children(plan)
        assert not await listens()

    asyncio.run(main())
    assert (tmp_path / "state" / "router.log").read_text("utf-8") == "[]\n[]\n"


def _children(plan: RouterPlan) -> list[int]:
    """Processes with the plan's command that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if plan.argv[-1].encode() in words and plan.argv[0].encode() in words:
            found.append(int(path.parent.name))
    return found


def test_a_router_that_does_not_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    """And the gateway does not start either."""
    program = tmp_path / "router"
    program.write_text("#!/bin/sh\necho 'no such device' >&2\nexit 3\n", "utf-8")
    program.chmod(0o755)
    plan = RouterPlan(name="router", argv=(str(program),), url="http://127.0.0.1:1")

    async def main() -> None:
        with pytest.raises(HeavyliftError, match="GW018") as failed:
            async with routing_through(plan, tmp_path):
                pass
        assert failed.value.params["last"] == "no such device"

    asyncio.run(main())
