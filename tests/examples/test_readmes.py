"""What is written beside the examples: three languages, the same commands, files that are there."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Final

import pytest
from tests.examples.conftest import EXAMPLES

FOLDERS: Final = (EXAMPLES, *sorted(path for path in EXAMPLES.iterdir() if path.is_dir()))
NAMES: Final = ("README.md", "README.zh-Hans.md", "README.zh-Hant.md")
BLOCK: Final = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_example_is_explained_in_three_languages_with_the_same_commands(
    folder: Path,
) -> None:
    """Each links to the others; programs that a command names lie in the folder."""
    texts = {name: (folder / name).read_text("utf-8") for name in NAMES}
    blocks = {name: BLOCK.findall(text) for name, text in texts.items()}
    assert blocks[NAMES[0]]
    assert blocks[NAMES[0]] == blocks[NAMES[1]] == blocks[NAMES[2]]
    for name, text in texts.items():
        assert all(other in text for other in NAMES if other != name)
    for command in blocks[NAMES[0]]:
        for program in re.findall(r"(?:python |\./)(\S+\.(?:py|sh))", command):
            assert (folder / program).is_file()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_traditional_chinese_is_written_as_such(folder: Path) -> None:
    """In Taiwan's characters and with none of the words that the glossary avoids."""
    glossary = (resources.files("heavylift.locale") / "glossary.toml").read_text("utf-8")
    text = BLOCK.sub("", (folder / NAMES[2]).read_text("utf-8").partition("\n")[2])
    for character in re.findall(r"[\u3400-\u9fff]", text):
        assert character.encode("cp950", "ignore"), character
    for avoided in tomllib.loads(glossary)["avoid"]["zh_Hant"]:
        assert not re.search(avoided, text), avoided
