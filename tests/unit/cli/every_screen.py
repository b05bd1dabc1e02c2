"""Every screen of the command line in one language, as JSON: a program of test_every_screen.

The words of options are made when a command is loaded, so that each language is a process of its
own. What is asked here needs no GPU and nothing outside this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import string
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import click

from heavylift.cli import click_words, codes
from heavylift.errors import HeavyliftError
from heavylift.locale import catalogue

SILENT = frozenset({"script", "style", "code", "pre", "option"})
QUESTION = "model=kimi-k3&on=8xMI355X"
WEB = (
    "/",
    f"/?{QUESTION}",
    "/?model=kimi-k3&on=8xH200",
    "/?model=nothing&on=8xH200",
    *(
        f"/part/{part}?{QUESTION}"
        for part in ("plan", "speed", "cost", "compare", "fixes", "recipe")
    ),
    "/live",
    "/part/live",
    "/part/keys",
)
K3 = ("kimi-k3", "--on", "8xMI355X")
TOPICS = (
    "weights",
    "kv_cache",
    "recurrent_state",
    "workspace",
    "outside_pool",
    "budget",
    "defaults",
    "layouts",
)


def asked(folder: Path, url: str) -> Iterator[tuple[str, ...]]:
    """Command lines, in an order in which the later ones find what the earlier ones left."""
    state, serve, log = (
        str(folder / "gateway"),
        str(folder / "serve.sh"),
        str(folder / "engine.log"),
    )
    yield from helps()
    yield ("plan", *K3)
    yield ("plan", *K3, "--engine", "atom", "--context", "1M", "--rules")
    yield ("plan", "kimi-k3", "--on", "8xH200", "--rules")
    yield ("plan", "kimi-k3", "--on", "1xRTX4090", "--engine", "llamacpp")
    yield ("plan", "qwen3-30b", "--on", "1xRTX4090", "--engine", "llamacpp", "--context", "32k")
    yield ("plan", *K3, "--command", serve)
    for engine in ("vllm", "sglang", "atom", "tokenspeed", "trtllm", "llamacpp", "ollama"):
        on = "8xB300" if engine in {"sglang", "trtllm"} else "8xMI355X"
        yield ("plan", "kimi-k3", "--on", on, "--engine", engine, "--mtp", "2")
        yield from (("explain", topic) for topic in TOPICS)
    yield ("compare", "kimi-k3", "--on", "8xH200", "--on", "8xMI355X")
    yield ("compare", "kimi-k3", "--search", "--engine", "vllm")
    yield ("fit", "--on", "1xRTX4090")
    yield ("variants", "kimi-k3", "--have", "512GB-mac")
    yield ("variants", "kimi-k3", "--have", "48GB")
    yield ("speed", *K3)
    yield ("pd", "kimi-k3", "--on", "8xB300", "--tpot", "50ms")
    yield ("decide", "kimi-k3", "--on", "8xB300", "--rent", "3")
    yield ("decide", "kimi-k3", "--on", "8xB300", "--in-house")
    yield ("simulate", *K3, "--no-search", "--requests", "50", "--processes", "1")
    yield ("facts",)
    yield ("inspect", "kimi-k3")
    yield ("recipe", *K3, "--explain")
    yield ("recipe", "kimi-k3", "--on", "8xH200")
    recipe = str(folder / "recipe")
    yield ("recipe", *K3, "--target", "docker", "-o", recipe)
    yield (
        *("golive", recipe, "--html", str(folder / "golive.html")),
        *("--markdown", str(folder / "golive.md")),
    )
    yield ("up", recipe, "--name", "k3")
    yield ("bring-up", recipe)
    for command in ("status", "logs", "down", "restart", "releases", "rollback", "golive"):
        yield (command, "nobody")
    yield ("status",)
    yield ("top", "--once")
    yield ("lint", serve)
    yield ("lint", serve, "--on", "8xH200")
    yield ("diagnose", log)
    for symptom in ("slow", "stuck", "garbled", "unreachable", "oom", "not-on-gpu"):
        yield ("diagnose", "--symptom", symptom)
    yield ("bundle", log, "--out", str(folder / "bundle.tar.gz"))
    yield ("doctor", "--from", str(folder / "snapshot.json"), "-v")
    yield (
        "doctor",
        "--from",
        str(folder / "snapshot.json"),
        "--for",
        f"{recipe}/launch.json",
        "-v",
    )
    yield ("checksum", str(folder / "checkpoint"))
    yield ("engine", "list")
    yield ("engine", "install", "nothing")
    yield ("fetch", "kimi-k3", "--dry-run", "--to", str(folder / "weights"))
    yield ("keys", "create", "alice", "--state", state, "--tokens-per-day", "2000000")
    yield ("keys", "list", "--state", state)
    yield ("keys", "team", "lab", "--state", state, "--tokens-per-day", "5")
    yield ("keys", "rotate", "alice", "--state", state)
    yield ("keys", "revoke", "alice", "--state", state)
    yield ("keys", "revoke", "nobody", "--state", state)
    yield ("usage", "--state", state)
    samples = str(folder / "samples.jsonl")
    yield (
        *("bench", url, "-n", "4", "--output-tokens", "8", "--samples", samples),
        *("--html", str(folder / "bench.html")),
    )
    yield ("bench", "compare", samples, samples)
    yield (
        *("verify", url, "--only", "basics", "--only", "structured", "--only", "tools"),
        *("--html", str(folder / "verify.html")),
    )
    batch = str(folder / "batch")
    rows = str(folder / "rows.jsonl")
    yield ("batch", "run", rows, "--out", batch, "--endpoint", url, "--prompt", "{{ text }}")
    yield ("batch", "status", batch)
    yield ("batch", "audit", batch)
    yield ("batch", "resume", batch)
    yield ("dev", "scenarios")
    yield ("dev", "bad-server", "--list")
    yield ("metrics", "history")
    yield from mistakes(folder)


def helps() -> Iterator[tuple[str, ...]]:
    """The help of every command and of every command under one."""
    from heavylift.cli.main import cli  # noqa: PLC0415 - in the language that is spoken by then

    def under(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
        yield (*words, "--help")
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    yield from under(inner, *words, name)

    yield from under(cli)


def mistakes(folder: Path) -> Iterator[tuple[str, ...]]:
    """What a person types wrong."""
    yield ("plan",)
    yield ("plann", "kimi-k3")
    yield ("xyzzy",)
    yield ("plan", "kimi-k4", "--on", "8xB300")
    yield ("plan", "kimi-k3", "--on", "8xM1355X")
    yield ("plan", "kimi-k3", "--on", "8xFOO")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--engine", "vlm")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--tp", "3")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--tp", "0")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--tp", "x")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--ep", "some")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--context", "lots")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--context", "2M")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--gpu-memory-utilization", "1.5")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--receipt", "/nowhere")
    yield ("plan", "kimi-k3", "--on")
    yield ("plan", "--nothing")
    yield ("plan", "kimi-k3", "more", "--on", "8xB300")
    yield ("plan", "kimi-k3", "--on", "8xB300", "--json=1")
    yield ("explain", "nothing")
    yield ("explain", "PLAN999")
    yield ("explain", "weights", "kimi-k3")
    yield ("variants", "kimi-k3", "--have", "512GB-amiga")
    yield ("recipe", *K3, "--target", "floppy")
    yield ("lint", "/nowhere")
    yield ("diagnose", "/nowhere")
    yield ("diagnose",)
    yield ("doctor", "--from", str(folder / "serve.sh"))
    yield ("checksum", "/nowhere")
    yield ("bench",)
    yield ("bench", "http://127.0.0.1:9", "--slo", "fast")
    yield ("bench", "compare", "/nowhere", "/nowhere")
    yield ("verify", "http://127.0.0.1:9")
    yield ("batch", "status", "/nowhere")
    yield ("keys", "list", "--state", "/nowhere")
    yield ("golive", "nobody", "--require", "nothing")
    yield ("completion", "tcsh")
    yield ("web", "--port", "x")


def filled(template: str) -> dict[str, object]:
    """Parameters for a text, long enough to need folding."""
    found: dict[str, object] = {}
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name:
            number = bool(spec) and spec[-1] in "dfgeE%," and not conversion
            found[name] = 123_456 if number else f"/srv/models/{name}-x"
    return found


def written(folder: Path) -> None:
    """Files that the commands read."""
    (folder / "serve.sh").write_text(
        "vllm serve moonshotai/Kimi-K3 —tensor-parallel-size 8 --host 0.0.0.0 --max-model-len 2M "
        "--enable-experts-parallel --kv-cache-dtype int4 --gpu-memory-utilization 0.99\n"
    )
    (folder / "engine.log").write_text(
        "INFO Initializing a V1 LLM engine (v0.29.0) with config: model='/models/Kimi-K3'\n"
        "(Worker_TP3 pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "1.31 GiB. GPU 3 has a total capacity of 139.81 GiB of which 1.02 GiB is free.\n"
    )
    (folder / "snapshot.json").write_text(
        json.dumps(
            {
                "host": "rack-1",
                "taken_at": "2026-03-02T10:00:00+00:00",
                "heavylift_version": "0",
                "observations": {
                    "read:/proc/sys/kernel/osrelease": {"state": "ok", "text": "6.8.0"}
                },
            }
        )
    )
    (folder / "rows.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    (checkpoint / "config.json").write_text("{}")


def shown(command: tuple[str, ...]) -> dict[str, str]:
    """What a command line writes to both streams."""
    from heavylift.cli.main import main  # noqa: PLC0415 - in the language that is spoken by then

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(command))
        except SystemExit:
            pass
    return {"out": out.getvalue(), "err": err.getvalue()}


def failures() -> Iterator[tuple[str, dict[str, str]]]:
    """Every error as it is told, and every page of a code."""
    from heavylift.cli.errors import show  # noqa: PLC0415 - in the language that is spoken by then

    for key in sorted(catalogue.keys()):
        code = key.removeprefix("error.")
        if key.startswith("error.") and codes.looks_like_code(code):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                show(HeavyliftError(code, filled(catalogue.template(key))))  # type: ignore[arg-type]
            yield f"error {code}", {"out": "", "err": err.getvalue()}
            if codes.page(code) is not None:
                yield f"explain {code}", shown(("explain", code))


class _Words(HTMLParser):
    """What a page says, a line per element of text; code and styles are none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Words that only a reader of the screen aloud hears, or that lie under the pointer."""
        self._silent += tag in SILENT
        for name, value in attrs:
            if name in {"title", "aria-label", "alt", "placeholder"} and value:
                self.lines.append(value)

    def handle_endtag(self, tag: str) -> None:
        """The end of what is passed over."""
        self._silent -= tag in SILENT

    def handle_data(self, data: str) -> None:
        """Words."""
        if not self._silent and data.strip():
            self.lines.append(" ".join(data.split()))


def words_of(page: str) -> str:
    """The words of a page of HTML."""
    reader = _Words()
    reader.feed(page)
    return "\n".join(reader.lines)


def pages(folder: Path, language: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What was written to be opened in a browser or read as Markdown, and the pages of the web."""
    for file in sorted(folder.glob("*.html")):
        yield f"page {file.name}", {"page": words_of(file.read_text("utf-8"))}
    for file in (*sorted(folder.glob("*.md")), folder / "recipe/README.md"):
        yield f"page {file.name}", {"page": _without_code(file.read_text("utf-8"))}
    for path, page in asyncio.run(_web(folder, language)).items():
        yield f"web {path}", {"page": words_of(page)}


def _without_code(markdown: str) -> str:
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


async def _web(folder: Path, language: str) -> dict[str, str]:
    import aiohttp  # noqa: PLC0415 - as the command does

    from heavylift.web.serve import Settings, running  # noqa: PLC0415

    asked = {"Accept-Language": language.replace("_", "-")}
    found = {}
    async with running(Settings(port=0, gateway=folder / "gateway")) as port:
        async with aiohttp.ClientSession(headers=asked) as session:
            for path in WEB:
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    found[path] = await response.text()
    return found


def main() -> None:
    """`every_screen.py LANGUAGE FOLDER URL`: writes FOLDER/screens.json."""
    language, given, url = sys.argv[1:]
    folder = Path(given)
    # No hub is asked; the width of a terminal is that of the screens.
    os.environ.update(HEAVYLIFT_HOME=str(folder / "home"), HF_ENDPOINT="http://127.0.0.1:9")
    os.chdir(folder)
    catalogue.use(language)
    click_words.install()
    written(folder)
    found = {" ".join(each): shown(each) for each in asked(folder, url)}
    found.update(failures())
    if language != catalogue.ENGLISH:
        found.update(pages(folder, language))
    (folder / "screens.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
