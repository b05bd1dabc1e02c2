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
import shlex
import string
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import click

from heavylift.cli import click_words, codes
from heavylift.errors import HeavyliftError, Scalar
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
# What is asked, in an order in which the later ones find what the earlier ones left. FOLDER is
# where the files of `written` lie, ENGINE the address of a scripted engine.
ASKED: Final = """
plan kimi-k3 --on 8xMI355X
plan kimi-k3 --on 8xMI355X --engine atom --context 1M --rules
plan kimi-k3 --on 8xH200 --rules
plan kimi-k3 --on 1xRTX4090 --engine llamacpp
plan qwen3-30b --on 1xRTX4090 --engine llamacpp --context 32k
plan kimi-k3 --on 8xMI355X --command FOLDER/serve.sh
compare kimi-k3 --on 8xH200 --on 8xMI355X
compare kimi-k3 --search --engine vllm
fit --on 1xRTX4090
variants kimi-k3 --have 512GB-mac
variants kimi-k3 --have 48GB
speed kimi-k3 --on 8xMI355X
pd kimi-k3 --on 8xB300 --tpot 50ms
decide kimi-k3 --on 8xB300 --rent 3
decide kimi-k3 --on 8xB300 --in-house
simulate kimi-k3 --on 8xMI355X --no-search --requests 50 --processes 1
facts
inspect kimi-k3
recipe kimi-k3 --on 8xMI355X --explain
recipe kimi-k3 --on 8xH200
recipe kimi-k3 --on 8xMI355X --target docker -o FOLDER/recipe
golive FOLDER/recipe --html FOLDER/golive.html --markdown FOLDER/golive.md
up FOLDER/recipe --name k3
bring-up FOLDER/recipe
status nobody
logs nobody
down nobody
restart nobody
releases nobody
rollback nobody
golive nobody
status
top --once
lint FOLDER/serve.sh
lint FOLDER/serve.sh --on 8xH200
diagnose FOLDER/engine.log
diagnose --symptom slow
diagnose --symptom stuck
diagnose --symptom garbled
diagnose --symptom unreachable
diagnose --symptom oom
diagnose --symptom not-on-gpu
bundle FOLDER/engine.log --to FOLDER/bundle.tar.gz
doctor --from FOLDER/snapshot.json -v
doctor --from FOLDER/snapshot.json --for FOLDER/recipe/launch.json -v
checksum FOLDER/checkpoint
engine list
engine install nothing
fetch kimi-k3 --dry-run --to FOLDER/weights
keys create alice --state FOLDER/gateway --tokens-per-day 2000000
keys list --state FOLDER/gateway
keys team lab --state FOLDER/gateway --tokens-per-day 5
keys rotate alice --state FOLDER/gateway
keys revoke alice --state FOLDER/gateway
keys revoke nobody --state FOLDER/gateway
usage --state FOLDER/gateway
bench ENGINE -n 4 --output-tokens 8 --samples FOLDER/samples.jsonl --html FOLDER/bench.html
bench compare FOLDER/samples.jsonl FOLDER/samples.jsonl
verify ENGINE --only basics --only structured --only tools --html FOLDER/verify.html
batch run FOLDER/rows.jsonl --out FOLDER/batch --endpoint ENGINE --prompt '{{ text }}'
batch status FOLDER/batch
batch audit FOLDER/batch
batch resume FOLDER/batch
dev scenarios
dev bad-server --list
metrics history
"""
MISTAKES: Final = """
plan
plann kimi-k3
xyzzy
plan kimi-k4 --on 8xB300
plan kimi-k3 --on 8xM1355X
plan kimi-k3 --on 8xFOO
plan kimi-k3 --on 8xB300 --engine vlm
plan kimi-k3 --on 8xB300 --tp 3
plan kimi-k3 --on 8xB300 --tp 0
plan kimi-k3 --on 8xB300 --tp x
plan kimi-k3 --on 8xB300 --ep some
plan kimi-k3 --on 8xB300 --context lots
plan kimi-k3 --on 8xB300 --context 2M
plan kimi-k3 --on 8xB300 --gpu-memory-utilization 1.5
plan kimi-k3 --on 8xB300 --receipt FOLDER/nowhere
plan kimi-k3 --on
plan --nothing
plan kimi-k3 more --on 8xB300
plan kimi-k3 --on 8xB300 --json=1
explain nothing
explain PLAN999
explain weights kimi-k3
variants kimi-k3 --have 512GB-amiga
recipe kimi-k3 --on 8xMI355X --target floppy
lint FOLDER/nowhere
diagnose FOLDER/nowhere
diagnose
doctor --from FOLDER/serve.sh
checksum FOLDER/nowhere
bench
bench http://127.0.0.1:9 --slo fast
bench compare FOLDER/nowhere FOLDER/nowhere
verify http://127.0.0.1:9
batch status FOLDER/nowhere
keys list --state FOLDER/nowhere
golive nobody --require nothing
completion tcsh
web --port x
"""


def asked(folder: Path, url: str) -> Iterator[tuple[str, ...]]:
    """Command lines."""
    yield from helps()
    for engine in ("vllm", "sglang", "atom", "tokenspeed", "trtllm", "llamacpp", "ollama"):
        rack = "8xB300" if engine in {"sglang", "trtllm"} else "8xMI355X"
        yield ("plan", "kimi-k3", "--on", rack, "--engine", engine, "--mtp", "2")
        yield from (("explain", topic) for topic in TOPICS)
    for line in (*ASKED.splitlines(), *MISTAKES.splitlines()):
        words = shlex.split(line.replace("FOLDER", str(folder)).replace("ENGINE", url))
        if words:
            yield tuple(words)


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


def filled(template: str) -> dict[str, Scalar]:
    """Parameters for a text, long enough to need folding."""
    found: dict[str, Scalar] = {}
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name:
            number = bool(spec) and not conversion and (spec or "")[-1] in "dfgeE%,"
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

    out, err = _Terminal(), _Terminal()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(SystemExit),
    ):
        main(list(command))
    return {"out": out.getvalue(), "err": err.getvalue()}


def failures() -> Iterator[tuple[str, dict[str, str]]]:
    """Every error as it is told, and every page of a code."""
    from heavylift.cli.errors import show  # noqa: PLC0415 - in the language that is spoken by then

    for key in sorted(catalogue.keys()):
        code = key.removeprefix("error.")
        if key.startswith("error.") and codes.looks_like_code(code):
            err = _Terminal()
            with contextlib.redirect_stderr(err):
                show(HeavyliftError(code, filled(catalogue.template(key))))
            yield f"error {code}", {"out": "", "err": err.getvalue()}
            if codes.page(code) is not None:
                yield f"explain {code}", shown(("explain", code))


class _Terminal(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        """As a terminal answers."""
        return True


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
    """What was written to be opened in a browser or read as Markdown, the pages of the reference
    that are made from the code, and those of the web.
    """
    from heavylift.cli.reference import commands, contracts, errors, facts  # noqa: PLC0415
    from heavylift.facts.catalog import Catalog  # noqa: PLC0415

    for file in sorted(folder.glob("*.html")):
        yield f"page {file.name}", {"page": words_of(file.read_text("utf-8"))}
    for file in (*sorted(folder.glob("*.md")), folder / "recipe/README.md"):
        yield f"page {file.name}", {"page": _without_code(file.read_text("utf-8"))}
    made = (*commands.pages(), *errors.pages(), *facts.pages(Catalog()), *contracts.pages())
    for path, words in made:
        if path.endswith(".md"):
            yield f"reference {path}", {"page": _without_code(words)}
    for path, page in asyncio.run(_web(folder, language)).items():
        yield f"web {path}", {"page": words_of(page)}


def _without_code(markdown: str) -> str:
    words = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\]\([^)]*\)|<[^>]*>", "]", words)


async def _web(folder: Path, language: str) -> dict[str, str]:
    import aiohttp  # noqa: PLC0415 - as the command does

    from heavylift.web.serve import Settings, running  # noqa: PLC0415

    asked = {"Accept-Language": language.replace("_", "-")}
    found = {}
    async with (
        running(Settings(port=0, gateway=folder / "gateway")) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=asked) as session,
    ):
        for path in WEB:
            async with session.get(path) as response:
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
