"""Languages: which one is spoken, and that every translation says what the English text says."""

from __future__ import annotations

import re
import string
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from babel.messages.catalog import Message

from heavylift.cli.text import text
from heavylift.locale import catalogue, extract

TRANSLATIONS = [
    (language, area) for language in catalogue.LANGUAGES[1:] for area in extract.areas()
]


@pytest.fixture(autouse=True)
def speak_english_again() -> Iterator[None]:
    """A test leaves no language behind."""
    yield
    catalogue.use(catalogue.ENGLISH)


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("en_GB.UTF-8", "en"),
        ("C", "en"),
        ("zh", "zh_Hans"),
        ("zh-CN", "zh_Hans"),
        ("zh_SG.UTF-8", "zh_Hans"),
        ("zh-Hans-TW", "zh_Hans"),
        ("zh_TW.UTF-8@radical", "zh_Hant"),
        ("zh-HK", "zh_Hant"),
        ("zh-Hant", "zh_Hant"),
        ("fr_FR", None),
    ],
)
def test_a_tag_means_one_of_the_languages_or_none(tag: str, language: str | None) -> None:
    """Taiwan, Hong Kong and Macau write traditional characters, the others simplified ones."""
    assert catalogue.normalised(tag) == language


@pytest.mark.parametrize(
    ("arguments", "environment", "language"),
    [
        ([], {}, "en"),
        (["plan"], {"LANG": "zh_CN.UTF-8"}, "zh_Hans"),
        (["plan"], {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (["plan"], {"LC_ALL": "C", "HEAVYLIFT_LANG": "zh-TW"}, "zh_Hant"),
        (["--lang", "zh-Hans", "plan"], {"HEAVYLIFT_LANG": "zh-TW"}, "zh_Hans"),
        (["--debug", "--lang=zh-TW", "plan"], {}, "zh_Hant"),
        (["bench", "--lang", "zh"], {}, "en"),
        (["plan"], {"LANG": "fr_FR.UTF-8"}, "en"),
    ],
)
def test_the_option_wins_over_the_variable_and_that_over_the_locale(
    arguments: list[str], environment: dict[str, str], language: str
) -> None:
    """`--lang` before the command, HEAVYLIFT_LANG, then LC_ALL, LC_MESSAGES, LANG."""
    assert catalogue.wanted(arguments, environment) == language


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh-TW,zh;q=0.9,en;q=0.8", "zh_Hant"),
        ("fr;q=0.9, zh-CN;q=0.5, en;q=0.7", "en"),
        ("de, *;q=x", "en"),
    ],
)
def test_a_browser_gets_what_it_prefers_among_ours(header: str, language: str) -> None:
    """Accept-Language by weight; what is malformed is passed over."""
    assert catalogue.of_header(header) == language


def test_a_language_that_is_not_there_is_refused_by_name() -> None:
    """`--lang fr` is a usage error that lists what there is."""
    run = [sys.executable, "-m", "heavylift", "--lang", "fr", "facts"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "zh-Hant" in done.stderr


def test_what_is_not_translated_is_shown_in_english() -> None:
    """A language without a word for something falls back message by message."""
    catalogue.use("zh_Hans")
    assert catalogue.words(extract.FACTS, "no such sentence") == "no such sentence"
    assert text("help.json")


def messages(language: str, area: str) -> Iterator[tuple[str, Message]]:
    """Every translated message of an area with its English text."""
    for message in extract.read(language, area):
        if message.id and message.string and not message.fuzzy:
            assert isinstance(message.id, str)
            yield message.id, message


def placeholders(words: str) -> list[tuple[str, str]]:
    """The parameters of a text and how they are to be written, in any order."""
    return sorted(
        (name, spec or "") for _, name, spec, _ in string.Formatter().parse(words) if name
    )


@pytest.mark.parametrize(("language", "area"), TRANSLATIONS)
def test_a_translation_has_the_placeholders_of_the_english_text(language: str, area: str) -> None:
    """A sentence never loses or invents a number."""
    if area == extract.FACTS:
        pytest.skip("facts have no placeholders")
    for english, message in messages(language, area):
        assert placeholders(str(message.string)) == placeholders(english), english


@pytest.mark.parametrize(("language", "area"), TRANSLATIONS)
def test_no_translation_is_of_a_text_that_is_gone(language: str, area: str) -> None:
    """What a language translates is what English says today: `make locale` has been run."""
    wanted = {(message.context, message.id) for message in extract.english(area)}
    found = {(message.context, message.id) for message in extract.read(language, area)}
    assert found <= wanted


# A language joins when its catalogues are complete.
COMPLETE = ("zh_Hans", "zh_Hant")
COMPLETE_AREAS = [(language, area) for language in COMPLETE for area in extract.areas()]
GLOSSARY = tomllib.loads(catalogue.folder("glossary.toml").read_text("utf-8"))
# A GPU is a card in many a sentence.
KEPT = [word for word in GLOSSARY["keep"] if word != "GPU"]
# A term of the glossary that stands for two of its words.
DISAGGREGATION = next(
    term for term in GLOSSARY["terms"] if term["en"] == "prefill/decode disaggregation"
)


@pytest.mark.parametrize(("language", "area"), COMPLETE_AREAS)
def test_every_text_is_translated(language: str, area: str) -> None:
    """All keys of an area, none of them left to be looked at again."""
    translated = {
        (message.context, message.id)
        for message in extract.read(language, area)
        if message.id and message.string and not message.fuzzy
    }
    wanted = {(message.context, message.id) for message in extract.english(area) if message.id}
    assert wanted - translated == set()


@pytest.mark.parametrize("language", COMPLETE)
def test_every_error_code_is_translated(language: str) -> None:
    """What goes wrong is said in the language of whom it goes wrong for."""
    catalogue.use(catalogue.ENGLISH)
    codes = [key for key in sorted(catalogue.keys()) if key.startswith("error.")]
    english = {key: catalogue.template(key) for key in codes}
    catalogue.use(language)
    same = {key for key, words in english.items() if catalogue.template(key) == words}
    assert english
    # One is a frame for another's words.
    assert same == {"error.USE000"}


@pytest.mark.parametrize(("language", "area"), COMPLETE_AREAS)
def test_a_table_keeps_its_columns_and_a_text_its_commands(language: str, area: str) -> None:
    """Headers are parted by `|`; what is typed, between quotes or after `--`, is not translated."""
    if area == "metavars":
        pytest.skip("what stands for a value is written like a variable, and is none")
    for english, message in messages(language, area):
        words = str(message.string)
        assert words.count("|") == english.count("|"), english
        flags = set(re.findall(r"--[a-z][a-z0-9-]+", english))
        assert flags == set(re.findall(r"--[a-z][a-z0-9-]+", words)), english
        for variable in re.findall(r"\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b", english):
            assert variable in words, english


@pytest.mark.parametrize(("language", "area"), COMPLETE_AREAS)
def test_words_of_the_field_are_kept(language: str, area: str) -> None:
    """`keep` words of the glossary are written in every language as they are in English."""
    for english, message in messages(language, area):
        words = str(message.string).lower()
        if DISAGGREGATION[language].lower() in words:
            words += "prefill decode"
        for kept in KEPT:
            # Not inside a flag, a file's name or a placeholder.
            if re.search(rf"(?<![\w.{{-]){re.escape(kept)}(?![\w}}=.-])", english):
                assert kept.lower() in words, (kept, english)


@pytest.mark.parametrize(("language", "area"), COMPLETE_AREAS)
def test_chinese_is_set_as_chinese(language: str, area: str) -> None:
    """A space between Chinese and Latin, none before punctuation, which is of full width."""
    for english, message in messages(language, area):
        words = str(message.string)
        assert not re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", words), (
            english
        )
        assert not re.search(r"[\u4e00-\u9fff][,;?!()]|[,;?!(][\u4e00-\u9fff]", words), english
        assert not re.search(r" [，。；：！？、）]", words), english


@pytest.mark.parametrize("area", extract.areas())
def test_taiwan_reads_no_simplified_character_and_no_word_of_the_mainland(area: str) -> None:
    """Every character is in Taiwan's own set (Big5), no word is one that the glossary avoids."""
    for english, message in messages("zh_Hant", area):
        words = str(message.string)
        for character in re.findall(r"[\u3400-\u9fff]", words):
            assert character.encode("cp950", "ignore"), (character, english)
        for avoided in GLOSSARY["avoid"]["zh_Hant"]:
            assert not re.search(avoided, words), (avoided, english)


@pytest.mark.parametrize("area", extract.areas())
def test_the_two_ways_to_write_chinese_differ(area: str) -> None:
    """Where Mainland China's text has a simplified character, Taiwan's is another text."""
    traditional = {
        (message.context, english): str(message.string)
        for english, message in messages("zh_Hant", area)
    }
    for english, message in messages("zh_Hans", area):
        words = str(message.string)
        if any(
            not each.encode("cp950", "ignore") for each in re.findall(r"[\u3400-\u9fff]", words)
        ):
            assert traditional.get((message.context, english)) != words, english
