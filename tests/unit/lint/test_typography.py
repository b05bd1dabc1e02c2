"""What copying from an article does to a text, undone."""

from __future__ import annotations

import pytest

from heavylift.lint.typography import straighten
from heavylift.linting import Linting


@pytest.mark.parametrize(
    ("given", "wanted", "repairs"),
    [
        ("a --b 'c'", "a --b 'c'", ()),
        ("a “b” ‘c’", "a \"b\" 'c'", ("quotes",)),
        ("a —model x –port 1", "a --model x --port 1", ("dashes",)),
        ("a ——model x", "a --model x", ("dashes",)),
        ("a –p 1", "a -p 1", ("dashes",)),
        ("a pre–post", "a pre–post", ()),
        ("--a＝１", "--a=1", ("wide",)),
        ("服务，启动", "服务，启动", ()),
        ("a\u200b b\u00a0c", "a b c", ("invisible",)),
        ("a\r\nb\rc", "a\nb\nc", ()),
        ("$ vllm serve x", "vllm serve x", ()),
        ("root@gpu-1:~# vllm serve x", "vllm serve x", ()),
        ("```bash\na\n```", "\na\n", ()),
    ],
)
def test_straighten(given: str, wanted: str, repairs: tuple[str, ...]) -> None:
    """Each kind of damage is undone and named; prose and prompts are not reported."""
    out = straighten(given)
    assert (out.text, out.repairs) == (wanted, repairs)


@pytest.mark.parametrize(
    "sentence",
    [
        "Here’s the command we used:",
        "That’s it!",
        "使用“官方”镜像启动：",
        "在双机（8 卡 H200）上运行：",
    ],
)
def test_the_typography_of_a_sentence_is_no_fault_of_the_command(
    linting: Linting, sentence: str
) -> None:
    """What leads to a command is read by people; the command below is whole."""
    text = f"{sentence}\nvllm serve Qwen/Qwen3-8B --max-model-len 40960"
    report = linting.lint(text)
    assert report.is_clean
    assert report.mended.startswith(text)
    broken = linting.lint(text.replace("--", "——").replace("40960", "“40960”"))
    assert "broken_by_copying" in {each.rule for each in broken.findings}
