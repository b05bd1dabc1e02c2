"""Real routers between the gateway and scripted engines: `make test-routers`.

What the engines do with each other's cache needs GPUs; what is shown here is that the router runs,
that both engines are asked, and that keys, quotas and streams hold in front of it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.servers import heavylift, playing

from heavylift.facts.catalog import Catalog
from heavylift.wire.client import Client, Endpoint
from heavylift.wire.failures import Failure
from heavylift.wire.reply import ChatRequest

HERE = os.environ.get("HEAVYLIFT_ROUTERS")
pytestmark = pytest.mark.skipif(HERE is None, reason="HEAVYLIFT_ROUTERS names no routers")

FIVE_WORDS = "[reply]\ntokens = 5\n"


@pytest.mark.parametrize("name", Catalog().ids("routers"))
def test_requests_go_through_the_router(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamed and whole; the prefill engine and the decode engine each see every request."""
    monkeypatch.setenv("PATH", f"{HERE}/{name}/bin{os.pathsep}{os.environ['PATH']}")
    state = ("--state", str(tmp_path))
    key = heavylift("keys", "create", "me", "--requests-per-minute", "4", *state)["key"]

    async def ask(url: str, *, stream: bool) -> Failure | None:
        request = ChatRequest(
            model="scripted",
            messages=({"role": "user", "content": "hi"},),
            max_tokens=5,
            stream=stream,
        )
        async with Client(Endpoint(base_url=url, key=key)) as client:
            outcome = await client.chat(request)
            if outcome.failure is None:
                assert outcome.reply.text.split() == ["lift", "the", "load", "with", "care"]
            return outcome.failure

    async def main() -> None:
        async with playing(FIVE_WORDS) as prefill, playing(FIVE_WORDS) as decoder:
            pd = [
                *("--pd-prefill", f"http://127.0.0.1:{prefill.port}"),
                *("--pd-decode", f"http://127.0.0.1:{decoder.port}", "--router", name),
            ]
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "heavylift", "gateway", *pd, "--port", "0", *state),
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                assert child.stderr is not None
                url = ""
                while not url:
                    line = (await child.stderr.readline()).decode()
                    assert line, "the gateway ended"
                    if line.startswith("listening on "):
                        url = line.removeprefix("listening on ").strip()
                async with Client(Endpoint(base_url=url, key=key)) as client:
                    while not await client.models():  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.1)
                before = (len(prefill.records), len(decoder.records))
                failures = [await ask(url, stream=number % 2 == 0) for number in range(5)]
                assert failures == [None] * 4 + [Failure.RATE_LIMITED]
                assert len(prefill.records) >= before[0] + 4
                assert len(decoder.records) >= before[1] + 4
            finally:
                child.terminate()
                await child.wait()

    asyncio.run(main())
