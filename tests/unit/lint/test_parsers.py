"""The parsers named for a model are those its published recipe has, by release of the model."""

from __future__ import annotations

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.linting import Linting
from heavylift.recipe.flags import FlagTable

# Published recipes of vLLM as of 2026-08-21; reasoning None where they name none.
PUBLISHED = {
    "deepseek-ai/DeepSeek-R1": ("deepseek_v3", "deepseek_r1"),
    "deepseek-ai/DeepSeek-V3.1": ("deepseek_v31", "deepseek_v3"),
    "deepseek-ai/DeepSeek-V3.2": ("deepseek_v32", "deepseek_v3"),
    "deepseek-ai/DeepSeek-V4-Pro": ("deepseek_v4", "deepseek_v4"),
    "zai-org/GLM-4.5": ("glm45", "glm45"),
    "zai-org/GLM-4.7": ("glm47", "glm45"),
    "zai-org/GLM-5.2": ("glm47", "glm45"),
    "moonshotai/Kimi-K2-Thinking": ("kimi_k2", "kimi_k2"),
    "moonshotai/Kimi-K2.5": ("kimi_k2", "kimi_k2"),
    "moonshotai/Kimi-K3": ("kimi_k3", "kimi_k3"),
    "MiniMaxAI/MiniMax-M2.5": ("minimax_m2", "minimax_m2"),
    "MiniMaxAI/MiniMax-M3": ("minimax_m3", "minimax_m3"),
    "Qwen/Qwen3.5-397B-A17B": ("qwen3_coder", "qwen3"),
    "Qwen/Qwen3.8-27B": ("qwen3_coder", "qwen3"),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": ("qwen3_coder", None),
    "Qwen/Qwen3-235B-A22B": ("hermes", "qwen3"),
    "openai/gpt-oss-120b": ("openai", "openai_gptoss"),
    "google/gemma-4-31B-it": ("gemma4", "gemma4"),
    "XiaomiMiMo/MiMo-V2.5": ("mimo", "mimo"),
    "stepfun-ai/Step-3.5-Flash": ("step3p5", "step3p5"),
    "LiquidAI/LFM2.5-1.2B-Instruct": ("lfm2", None),
    "meta-llama/Llama-3.3-70B-Instruct": ("llama3_json", None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parsers_are_named(name: str, linting: Linting) -> None:
    """A command without parsers is told those of the model's own recipe."""
    report = linting.lint(f"vllm serve {name} --tensor-parallel-size 8")
    named = {each.rule: each.params.get("other") for each in report.findings}
    tool, reasoning = PUBLISHED[name]
    assert named["no_tool_parser"] == tool
    assert named.get("no_reasoning_parser") == reasoning


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parsers_are_taken(name: str, linting: Linting) -> None:
    """A command with them has no finding on its parsers."""
    tool, reasoning = PUBLISHED[name]
    text = f"vllm serve {name} -tp 8 --tool-call-parser {tool} --enable-auto-tool-choice"
    if reasoning is not None:
        text += f" --reasoning-parser {reasoning}"
    found = {each.rule for each in linting.lint(text).findings}
    assert not found & {"no_tool_parser", "no_reasoning_parser", "parser_family_mismatch"}


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "tool"), ("sglang", "tool")])
def test_every_model_has_a_parser_that_the_engine_lists(engine: str, flag: str) -> None:
    """Of the names of each model, the newest release of either engine lists one."""
    catalog = Catalog()
    table = FlagTable(catalog.flags(engine))
    listed = table.facts.flags[f"--{flag}-call-parser"].choices
    for model in catalog.command_models().models:
        if model.tool_parsers:
            assert set(model.tool_parsers) & set(listed), model.id


def test_every_default_form_has_a_repository() -> None:
    """What an engine takes unasked is published under a name, so that a recipe can say which."""
    catalog = Catalog()
    missing = [
        (model, variant.id)
        for model in catalog.ids("models")
        for variant in catalog.model(model).variants
        if {"vllm", "sglang"} & set(variant.default_for) and not variant.repo
    ]
    assert missing == []


def test_a_parser_that_no_release_has_is_of_no_family(linting: Linting) -> None:
    """TensorRT-LLM has none for this model: a name it has not either may be of a plug-in."""
    text = "trtllm-serve serve openai/gpt-oss-120b --tp_size 2 --tool_parser "
    rules = {each.rule for each in linting.lint(text + "gpt_oss").findings}
    assert "parser_only_in_plugin" in rules
    assert "parser_family_mismatch" not in rules
    foreign = {each.rule for each in linting.lint(text + "kimi_k2").findings}
    assert "parser_family_mismatch" in foreign
