"""What holds for the linter whatever the text."""

from __future__ import annotations

import shlex

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heavylift.lint.words import split
from heavylift.linting import Linting

LINTING = Linting()

_LETTERS = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))
_WORDS = st.lists(st.text(_LETTERS, min_size=1, max_size=12), min_size=1, max_size=8)
_PIECES = st.sampled_from(
    [
        "vllm serve",
        "docker run",
        "--tensor-parallel-size",
        "-tp",
        "8",
        "--gpus",
        "all",
        "{",
        "}",
        '"a":',
        "moonshotai/Kimi-K3",
        "\\",
        "\n",
        "'",
        '"',
        "$A",
        "${B[@]}",
        "A=(",
        ")",
        "#",
        ";",
        "vllm/vllm-openai:v0.32.0",
        "--kv-transfer-config",
        "llama-server",
        "-c",
        "-np",
        "<x>",
        "services:",
        "  command:",
        "- x",
        "[Service]",
        "ExecStart=",
        "Environment=",
        "=",
        "0",
        "sglang serve",
        "--model-path",
        "--data-parallel-size",
        "--pipeline-parallel-size",
        "-1",
        "--max-model-len",
        "99999999999999",
        "--max-num-seqs",
        "--gpu-memory-utilization",
        "nan",
        "apiVersion: v1",
        "hf download",
        "--kv-cache-memory-bytes",
    ]
)


_KEYS = st.sampled_from(
    [
        "services",
        "image",
        "command",
        "args",
        "environment",
        "env",
        "name",
        "value",
        "volumes",
        "devices",
        "ports",
        "ipc",
        "shm_size",
        "healthcheck",
        "start_period",
        "interval",
        "retries",
        "deploy",
        "resources",
        "limits",
        "nvidia.com/gpu",
        "spec",
        "template",
        "containers",
        "volumeMounts",
        "mountPath",
        "emptyDir",
        "sizeLimit",
        "livenessProbe",
        "periodSeconds",
        "securityContext",
        "model",
        "base_args",
        "tensor-parallel-size",
        "runtime",
        "group_add",
        "reservations",
        "hostNetwork",
        "entrypoint",
        "kind",
        "startupProbe",
        "failureThreshold",
    ]
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [
            "vllm serve m -tp 8",
            "--model moonshotai/Kimi-K3",
            "vllm/vllm-openai:v0.32.0",
            "/dev/kfd",
            "1m30s",
            "16g",
            "host",
            "gpu",
            "a:b",
            "--flag=1",
            "--x y",
            "A=1",
        ]
    ),
)
_NODES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_KEYS, _NODES, min_size=1, max_size=5))
@example({"services": {"a": {"volumes": True}}})
@example({"containers": [{"volumeMounts": True}], "volumes": 1})
@example({"containers": [{"volumeMounts": [{"name": []}]}], "volumes": [{"name": {}}]})
def test_any_file_is_read(document: dict[str, object]) -> None:
    """No arrangement of the keys of compose, Kubernetes and recipes raises."""
    LINTING.lint(yaml.safe_dump(document), rack="8x H200")


@given(_WORDS)
def test_quoted_words_come_back(words: list[str]) -> None:
    """Words quoted for a shell are read back as they were."""
    commands = split(shlex.join(words)).commands
    assert [[word.text for word in command] for command in commands] == [words]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    """No text raises."""
    LINTING.lint(text)


@settings(max_examples=150, deadline=None)
@given(st.lists(_PIECES, max_size=25), st.sampled_from([None, "8x H200", "2x8 B300", "8xMI355X"]))
def test_any_command_is_judged(pieces: list[str], rack: str | None) -> None:
    """No arrangement of the words of commands raises, with a rack or without; it is judged the
    same again.
    """
    text = " ".join(pieces)
    first = LINTING.lint(text, rack=rack)
    assert LINTING.lint(text, rack=rack) == first


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 4), st.integers(1, 4))
def test_more_memory_never_turns_fit_into_misfit(tensor: int, pipeline: int, data: int) -> None:
    """A layout whose weights fit an H200 fits a B300 too."""
    text = (
        "vllm serve moonshotai/Kimi-K3 --trust-remote-code --max-model-len 8192 "
        f"--tensor-parallel-size {tensor} --pipeline-parallel-size {pipeline} "
        f"--data-parallel-size {data}"
    )
    small = {finding.rule for finding in LINTING.lint(text, rack="8x8 H200").findings}
    large = {finding.rule for finding in LINTING.lint(text, rack="8x8 B300").findings}
    assert "weights_do_not_fit" in small or "weights_do_not_fit" not in large
