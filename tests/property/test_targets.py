"""Whatever words a launch holds, its process gets exactly them, at every target."""

from __future__ import annotations

import re
import subprocess

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.facts.catalog import Catalog
from heavylift.recipe.targets import render
from heavylift.recipe.targets.records import Rendering, Runtime, TargetOptions
from heavylift.recipe.targets.words import command_lines, shell_word
from heavylift.records.launch import LaunchSpec, RankSpec

ACCESS = Catalog().card_access("nvidia")
LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
WORDS = st.lists(
    st.text(LETTERS, max_size=12)
    | st.sampled_from(["$", "$$", "$(A)", "$$(A)", "${A}", "'", '"', "\\", "-x", "--a=b", "# c"])
    | st.text("$(){}A'\"\\ =-\n#:", max_size=8),
    max_size=8,
)


def launch(words: list[str], env: dict[str, str]) -> LaunchSpec:
    """A launch of one rank with these words after its command."""
    rank = RankSpec(
        rank=0,
        host="",
        name="serve-0",
        gpus=1,
        argv=("engine", *words),
        env=env,
        ports={},
        serves=False,
    )
    return LaunchSpec(
        engine="e",
        engine_version="1",
        image="a/b:v1",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=(rank,),
        expected_phases=(),
        deadline_s=60,
        plan_digest="sha256:0",
        gpu_vendor="nvidia",
    )


def rendering(target: str, words: list[str], env: dict[str, str] | None = None) -> Rendering:
    """That launch as files."""
    options = TargetOptions(name="x", runtime=Runtime.HOST)
    return render(target, launch(words, env or {}), options, ACCESS)


@settings(max_examples=60, deadline=None)
@given(words=WORDS)
def test_bash_reads_every_word_as_it_was_written(words: list[str]) -> None:
    """Quoting and the breaking of lines change nothing."""
    rank = launch(words, {}).ranks[0]
    lines = command_lines(shell_word(word, rank) for word in ("printf", "%s\\0", "-", *words))
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[1:-1] == words


@settings(deadline=None)
@given(words=WORDS, value=st.text(LETTERS, max_size=12))
def test_compose_interpolates_back_to_the_words(words: list[str], value: str) -> None:
    """A file read as YAML and interpolated as the compose specification says is the launch."""
    text = rendering("compose", words, {"V": value}).files[0].text
    service = yaml.safe_load(text)["services"]["serve-0"]

    def interpolated(word: str) -> str:
        assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", word), "an unescaped dollar"
        return word.replace("$$", "$")

    assert [*map(interpolated, service.get("command") or [])] == words
    assert interpolated(service["environment"]["V"]) == value


def expanded(text: str, variables: dict[str, str]) -> str:
    """As the kubelet expands `$(NAME)`: a doubled dollar is one; an unknown name stays as it is."""
    result, place = "", 0
    while place < len(text):
        if text[place] != "$" or place + 1 == len(text):
            result, place = result + text[place], place + 1
        elif text[place + 1] == "$":
            result, place = result + "$", place + 2
        elif text[place + 1] == "(" and ")" in text[place + 2 :]:
            end = text.index(")", place + 2)
            name = text[place + 2 : end]
            result, place = result + variables.get(name, text[place : end + 1]), end + 1
        else:
            result, place = result + "$" + text[place + 1], place + 2
    return result


@settings(deadline=None)
@given(words=WORDS)
def test_a_cluster_expands_back_to_the_words(words: list[str]) -> None:
    """Nothing of a literal is taken for a variable, and addresses after it still are."""
    told = [f"{word}{{host:self}}" for word in words]
    text = rendering("kubernetes", [*words, *told]).files[0].text
    container = next(iter(yaml.safe_load_all(text)))["spec"]["template"]["spec"]["containers"][0]
    variables = {"POD_IP": "10.0.0.1", "A": "wrong"}
    args = [expanded(word, variables) for word in container.get("args") or []]
    assert args == [*words, *(f"{word}10.0.0.1" for word in words)]
