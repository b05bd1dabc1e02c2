"""Commands among words: engines, containers, variables, versions."""

from __future__ import annotations

import pytest

from heavylift.lint.case import Case, Hints
from heavylift.lint.command import Command
from heavylift.lint.commands import CommandReader, mount, size
from heavylift.lint.reading import read
from heavylift.linting import Linting


def only(text: str, reader: CommandReader) -> Command:
    """The one command of a text."""
    (command,) = read(text, reader).commands
    return command


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm serve m", "vllm"),
        ("/opt/bin/vllm serve m", "vllm"),
        ("sudo env A=1 uv run vllm serve m", "vllm"),
        ("python3.11 -m sglang.launch_server --model-path m", "sglang"),
        ("sglang serve --model-path m", "sglang"),
        ("python -m atom.entrypoints.openai_server --model m", "atom"),
        ("ts serve --model m", "tokenspeed"),
        ("./build/bin/llama-server -m m.gguf", "llamacpp"),
        ("ollama run m", "ollama"),
        ("docker model run m", "docker-model"),
        ("hf download m", "download"),
        ("trtllm-serve m --tp_size 8", "tensorrt-llm"),
        ("docker run --gpus all vllm/vllm-openai:v1 --model m", "vllm"),
        (
            "podman run x/lmsysorg/sglang:v1 python3 -m sglang.launch_server --model-path m",
            "sglang",
        ),
        ("docker container run ghcr.io/ggml-org/llama.cpp:server-cuda -m m.gguf", "llamacpp"),
        ("docker run img bash -lc 'cd /x && vllm serve m'", "vllm"),
        ('srun bash -c "vllm serve m"', "vllm"),
        ("VLLM_LOGGING_LEVEL=DEBUG", "vllm"),
    ],
)
def test_engine(text: str, engine: str, reader: CommandReader) -> None:
    """An engine is known by its entry, its image or its variables."""
    command = only(text, reader)
    assert command.engine is not None
    assert command.engine.id == engine


def test_a_container_is_taken_apart(reader: CommandReader) -> None:
    """Flags of the container stay apart from those of the engine, in every spelling."""
    command = only(
        "docker run -it --rm -p8000:8000 -v/a:/b --mount type=bind,src=/c,dst=/d --env A=1 -e B "
        "--net host --ipc=host --shm-size=16g --device /dev/kfd --group-add 44 "
        "vllm/vllm-openai-rocm:v0.29.0 --model /b --port 8000",
        reader,
    )
    box = command.container
    assert box is not None
    assert (box.image, box.network, box.ipc) == ("vllm/vllm-openai-rocm:v0.29.0", "host", "host")
    assert box.mounts == (("/a", "/b"), ("/c", "/d"))
    assert (box.devices, box.groups, box.ports) == (("/dev/kfd",), ("44",), ("8000:8000",))
    assert box.shm_bytes == 16 * 2**30
    assert command.env == {"A": "1", "B": "$B"}
    assert [(option.name, option.value) for option in command.options] == [
        ("--model", "/b"),
        ("--port", "8000"),
    ]


def test_lines_of_a_container_without_backslashes(reader: CommandReader) -> None:
    """An image on a line of its own still belongs to the command above it."""
    command = only("docker run\n  --gpus all\nvllm/vllm-openai:v1\n  --model m", reader)
    assert command.container is not None
    assert command.container.image == "vllm/vllm-openai:v1"
    assert [option.name for option in command.options] == ["--model"]


def test_variables_are_filled_in(reader: CommandReader) -> None:
    """What a script assigns is put in, defaults are taken, the rest stays; only exports reach the
    engine.
    """
    command = only(
        'M="a b"\nexport VLLM_X=1\nN=${N:-8}\nARGS=(--port $N --dtype auto)\n'
        'FLAGS="--seed 3"\nvllm serve "$M" "${ARGS[@]}" $FLAGS --host $HOST',
        reader,
    )
    assert command.positionals == ("a b",)
    assert [(option.name, option.value) for option in command.options] == [
        ("--port", "8"),
        ("--dtype", "auto"),
        ("--seed", "3"),
        ("--host", "$HOST"),
    ]
    assert command.env == {"VLLM_X": "1"}


def test_two_commands_on_one_line(reader: CommandReader) -> None:
    """A lost newline between two commands does not make them one."""
    commands = read("A=1 vllm serve m --port 1 B=2 vllm serve n --port 2", reader).commands
    assert [(each.positionals, each.env) for each in commands] == [
        (("m",), {"A": "1"}),
        (("n",), {"B": "2"}),
    ]


def test_what_is_no_command(reader: CommandReader) -> None:
    """Prose and other programs hold no command of an engine."""
    assert read("this is prose", reader).commands == ()
    assert read("docker run", reader).commands == ()
    assert read("docker run ubuntu ls", reader).commands == ()
    unknown = only("FOO=1 ./thing --model kimi-k3 --threads 4", reader)
    assert (unknown.engine, unknown.fragment) == (None, True)
    assert only("FOO=1", reader).engine is None


@pytest.mark.parametrize(
    ("hint", "image", "number", "unnumbered"),
    [
        (None, "vllm/vllm-openai:v0.29.0", "0.29.0", False),
        (None, "vllm/vllm-openai:kimi-k3", None, True),
        (None, "vllm/vllm-openai:latest", None, False),
        (None, "vllm/vllm-openai@sha256:00", None, False),
        ("0.32.0", "vllm/vllm-openai:v0.29.0", "0.32.0", False),
        ("0.33.0 (newest wheel)", None, "0.33.0", False),
        ("unstated", None, None, False),
        ("main at 2026-08-17", None, None, True),
        ("0.26.1rc0 fork + LMCache", None, None, True),
        ("image kimi-k3 + 3 source patches", None, None, True),
        ("0.1.dev19262+gb6bbf29dd", None, None, True),
    ],
)
def test_version(
    hint: str | None, image: str | None, number: str | None, unnumbered: bool, linting: Linting
) -> None:
    """A release has a number; an image, a branch or a fork is stated without one."""
    text = "vllm serve m" if image is None else f"docker run {image} --model m"
    reader = CommandReader(linting.library.engines, linting.library.tables)
    case = Case(only(text, reader), linting.library, Hints(version=hint))
    assert (case.version.number, case.version.is_unnumbered) == (number, unnumbered)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16g", 2**34),
        ("10.24gb", 10995116278),
        ("512m", 2**29),
        ("x", None),
        (None, None),
        ("1.2.3g", None),
        (".", None),
        ("16.g", None),
        ("١٦g", None),
        ("9" * 5000, None),
    ],
)
def test_size(text: str | None, value: int | None) -> None:
    """Sizes of a container are powers of two; what only looks like one is passed over."""
    assert size(text) == value


def test_mount() -> None:
    """A bind mount has two sides, an anonymous volume one."""
    assert mount("/a:/b:ro") == ("/a", "/b")
    assert mount("/b") is None


def test_variables_do_not_grow_without_end(reader: CommandReader) -> None:
    """Assignments that double a value over and over stop being put in."""
    text = "A=xxxxxxxx\n" + "A=$A$A\n" * 64 + "vllm serve $A"
    assert len(only(text, reader).positionals[0]) < 1 << 17


def test_many_commands_in_a_row(reader: CommandReader) -> None:
    """Thousands of commands on one line are read one after the other."""
    assert len(read("vllm serve m " * 1500, reader).commands) == 1500


@pytest.mark.parametrize(("value", "carried"), [("1", True), ("0", False)])
def test_a_variable_of_a_new_name_keeps_what_it_said(
    linting: Linting, value: str, carried: bool
) -> None:
    """Since 0.31.0 the arithmetic is asked for by its name, not by a 1; a 0 has no such word."""
    old = f"VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4={value}"
    report = linting.lint(
        f"{old} vllm serve moonshotai/Kimi-K3 -tp 8", rack="8x MI355X", version="0.32.0"
    )
    assert "env_renamed" in {each.rule for each in report.findings}
    assert ("VLLM_ROCM_USE_AITER_MOE_SITUV2=a8w4" in report.mended) is carried
    assert (old in report.mended) is not carried
