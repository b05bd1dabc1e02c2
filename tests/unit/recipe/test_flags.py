"""Flags and variables by engine version."""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path

import pytest

from heavylift.facts.catalog import Catalog
from heavylift.facts.command_schema import FlagFacts, FlagTableFacts, SettingsFileFacts
from heavylift.facts.defects import FactsError
from heavylift.facts.schema import FactKind
from heavylift.recipe.flags import FlagTable, Presence


def table(
    *,
    partial: bool = False,
    env_partial: bool = False,
    abbreviates: bool = True,
    exact: bool = False,
) -> FlagTable:
    """A small table over three versions."""
    facts = FlagTableFacts(
        engine="e",
        read=("1.0", "1.1", "2.0"),
        kind=FactKind.DERIVED,
        source="s",
        as_of=date(2026, 1, 1),
        partial=partial,
        env_partial=env_partial,
        flags={
            "--old": FlagFacts(type="bool", until="1.1"),
            "--new-size": FlagFacts(type="int", since="1.1", aliases=("-n",)),
            "--switch": FlagFacts(type="bool", negatable=True, aliases=("-s", "-nos")),
            "--config": FlagFacts(type="json"),
            "--own_name": FlagFacts(),
            "--renamed": FlagFacts(
                since="1.1",
                aliases=("--first-name", "--last-name"),
                alias_since={"--first-name": "1.0", "--last-name": "2.0"},
            ),
            "--kind": FlagFacts(
                choices=("a", "b", "c"), choice_since={"b": "1.1"}, choice_until={"c": "2.0"}
            ),
        },
        env={"E_LIMIT_S": FlagFacts(), "E_GONE": FlagFacts(until="2.0")},
        file=SettingsFileFacts(
            read=("1.1", "2.0"),
            kind=FactKind.DERIVED,
            source="s",
            as_of=date(2026, 1, 1),
            keys={
                "plain": FlagFacts(type="int"),
                "cache.size": FlagFacts(type="int", since="2.0"),
                "cache.kept": FlagFacts(until="2.0"),
            },
        ),
    )
    return FlagTable(facts, abbreviates=abbreviates, exact=exact)


@pytest.mark.parametrize(
    ("written", "version", "presence"),
    [
        ("--renamed", "1.0", Presence.NOT_YET),
        ("--renamed", "1.1", Presence.PRESENT),
        ("--first-name", "1.0", Presence.PRESENT),
        ("--last-name", "1.1", Presence.NOT_YET),
        ("--last-name", None, Presence.PRESENT),
        ("--first-name", "0.9", Presence.UNKNOWN),
    ],
)
def test_an_alias_may_be_older_or_younger_than_the_name(
    written: str, version: str | None, presence: Presence
) -> None:
    """Each spelling has its own first version."""
    found = table().flag(written)
    assert found is not None
    assert found.name == "--renamed"
    assert table().presence(found, version) is presence


def test_choices_are_those_of_the_version() -> None:
    """A value came with one version and went with another; no version stands for the newest."""
    flags = table()
    facts = flags.facts.flags["--kind"]
    assert flags.choices(facts, "1.0") == ("a", "c")
    assert flags.choices(facts, "1.1") == ("a", "b", "c")
    assert flags.choices(facts, None) == flags.choices(facts, "9.9") == ("a", "b")


def test_an_exact_parser_takes_no_other_spelling() -> None:
    """Dashes are not underscores, and a beginning is no flag."""
    flags = table(exact=True)
    assert flags.flag("--own_name") is not None
    assert [flags.flag(each) for each in ("--own-name", "--new_size", "--new", "--config.x")] == [
        None
    ] * 4


@pytest.mark.parametrize(
    ("path", "version", "presence"),
    [
        ("plain", "1.1", Presence.PRESENT),
        ("plain", "1.0", Presence.UNKNOWN),
        ("cache.size", "1.1", Presence.NOT_YET),
        ("cache.kept", "2.0", Presence.GONE),
        ("cache.other", "2.0", Presence.ABSENT),
        ("other", "2.0", Presence.ABSENT),
        ("unread.key", "2.0", Presence.UNKNOWN),
    ],
)
def test_keys_of_a_file_of_settings(path: str, version: str, presence: Presence) -> None:
    """They have versions of their own; within a key whose own were not read all is unknown."""
    assert table().key_presence(path, version) is presence
    assert table().read_whole == ("1.1", "2.0")


def test_variables_may_be_read_in_part() -> None:
    """A whole list of flags says nothing of variables."""
    flags = table(env_partial=True)
    assert flags.env_presence("E_X", "2.0") is Presence.UNKNOWN
    assert flags.flag_presence("--none", "2.0") is Presence.ABSENT


@pytest.mark.parametrize(
    ("written", "versions"),
    [
        ("--tp_size", ("1.0.0", "1.1.0", "1.2.0", "1.2.1", "1.3.0rc27")),
        ("--extra_llm_api_options", ("1.0.0", "1.1.0", "1.2.0", "1.2.1", "1.3.0rc27")),
        ("--kv_cache_free_gpu_memory_fraction", ("1.0.0", "1.1.0", "1.2.0", "1.2.1", "1.3.0rc27")),
        ("--config", ("1.2.0", "1.2.1", "1.3.0rc27")),
        ("--free_gpu_memory_fraction", ("1.2.0", "1.2.1", "1.3.0rc27")),
        ("--tool_parser", ("1.2.0", "1.2.1", "1.3.0rc27")),
        ("--kv_cache_dtype", ("1.3.0rc27",)),
        ("--hf_revision", ("1.3.0rc27",)),
    ],
)
def test_names_of_tensorrt_llm_by_version(written: str, versions: tuple[str, ...]) -> None:
    """As the pages of each release print them: several names have two spellings since 1.2.0."""
    flags = FlagTable(Catalog().flags("tensorrt-llm"), exact=True)
    found = flags.flag(written)
    assert found is not None
    assert versions == tuple(
        each for each in flags.facts.read if flags.presence(found, each) is Presence.PRESENT
    )


def test_parsers_and_backends_of_tensorrt_llm_by_version() -> None:
    """Kimi K3's parsers are new in the candidate, the TensorRT backend is gone there."""
    flags = FlagTable(Catalog().flags("tensorrt-llm"))

    def taken(name: str, version: str) -> set[str]:
        return set(flags.choices(flags.facts.flags[name], version))

    assert taken("--reasoning_parser", "1.1.0") == {"deepseek-r1"}
    assert taken("--reasoning_parser", "1.2.1") == {"deepseek-r1", "qwen3", "nano-v3"}
    assert "kimi_k3" in taken("--reasoning_parser", "1.3.0rc27")
    assert "kimi_k3" in taken("--tool_parser", "1.3.0rc27") - taken("--tool_parser", "1.2.1")
    assert taken("--backend", "1.0.0") == {"pytorch", "trt"}
    assert taken("--backend", "1.2.1") - taken("--backend", "1.3.0rc27") == {"tensorrt"}


def test_bounds_of_names_lie_among_the_versions_read() -> None:
    """Of every table: a bound that is none of them would never hold, or always."""
    catalog = Catalog()
    for identifier in catalog.ids("flags"):
        table_facts = catalog.flags(identifier)
        tables = [(table_facts.flags, table_facts.read), (table_facts.env, table_facts.read)]
        if table_facts.file is not None:
            assert set(table_facts.file.read) <= set(table_facts.read)
            tables.append((table_facts.file.keys, table_facts.file.read))
        for names, read in tables:
            for name, facts in names.items():
                bounds = {facts.since, facts.until} - {None}
                bounds |= {*facts.alias_since.values(), *facts.choice_since.values()}
                assert bounds | set(facts.choice_until.values()) <= set(read), (identifier, name)
                assert set(facts.alias_since) <= set(facts.aliases), name
                assert {*facts.choice_since, *facts.choice_until} <= set(facts.choices), name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("--new-size", "--new-size"),
        ("--new_size", "--new-size"),
        ("-n", "--new-size"),
        ("--no-switch", "--switch"),
        ("-nos", "--switch"),
        ("--config.member", "--config"),
        ("--own_name", "--own_name"),
        ("--new", "--new-size"),
        ("--n", None),
        ("--nothing", None),
        ("-x", None),
    ],
)
def test_spellings(written: str, name: str | None) -> None:
    """Aliases, negations, underscores, members and clear beginnings find their flag."""
    found = table().flag(written)
    assert (found.name if found else None) == name


def test_how_it_was_spelt() -> None:
    """A look-up says what was unusual about the spelling."""
    flags = table()
    underscored, negated, short = (
        flags.flag("--new_size"),
        flags.flag("--no-switch"),
        flags.flag("--conf"),
    )
    assert underscored is not None
    assert negated is not None
    assert short is not None
    assert underscored.underscores
    assert negated.negated
    assert short.abbreviated
    own = flags.flag("--own_name")
    assert own is not None
    assert not own.underscores
    assert table(abbreviates=False).flag("--conf") is None


@pytest.mark.parametrize(
    ("name", "version", "presence"),
    [
        ("--old", "1.0", Presence.PRESENT),
        ("--old", "1.1", Presence.GONE),
        ("--old", None, Presence.GONE),
        ("--new-size", "1.0", Presence.NOT_YET),
        ("--new-size", None, Presence.PRESENT),
        ("--none", "1.0", Presence.ABSENT),
        ("--old", "3.0", Presence.UNKNOWN),
        ("--none", "3.0", Presence.UNKNOWN),
    ],
)
def test_presence(name: str, version: str | None, presence: Presence) -> None:
    """A version has a flag, not yet, no longer or never; an unread version is not known."""
    assert table().flag_presence(name, version) is presence


def test_a_partial_table_knows_nothing_of_absent_names() -> None:
    """In a partial table an absent name is unknown, never absent."""
    assert table(partial=True).flag_presence("--none", "1.0") is Presence.UNKNOWN
    assert table(partial=True).env_presence("E_X", None) is Presence.UNKNOWN


def test_near_names() -> None:
    """A name that is nearly one is suggested, only where the newest version has it."""
    flags = table()
    assert flags.near_flag("--new-sise") == "--new-size"
    assert flags.near_flag("--n") == "--new-size"
    assert flags.near_flag("--whatever") is None
    assert flags.near_env("E_LIMIT") == "E_LIMIT_S"
    assert flags.near_env("E_LIMITS") == "E_LIMIT_S"
    assert flags.near_env("E_GON") is None


def test_read_versions() -> None:
    """The newest version and those read are the table's own."""
    flags = table()
    assert flags.newest == "2.0"
    assert flags.is_read("1.1")
    assert not flags.is_read("9")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.27.0", "AITER_SITUV2_A8W4"),
        ("0.29.0", "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4"),
        ("0.32.0", "VLLM_ROCM_USE_AITER_MOE_SITUV2"),
    ],
)
def test_a_variable_renamed_twice(version: str, name: str) -> None:
    """Releases of vLLM read the AITER switch under three names, each in its own versions."""
    names = {
        "AITER_SITUV2_A8W4",
        "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4",
        "VLLM_ROCM_USE_AITER_MOE_SITUV2",
    }
    flags = FlagTable(Catalog().flags("vllm"))
    present = {each for each in names if flags.env_presence(each, version) is Presence.PRESENT}
    assert present == {name}


def test_what_replaces_a_name_exists() -> None:
    """Every name that the linter suggests instead of another is in the newest read version."""
    catalog = Catalog()
    for change in catalog.name_changes():
        flags = FlagTable(catalog.flags(change.engine))
        other = change.replaced_by
        if other is None:
            continue
        found = flags.flag(other)
        presence = (
            flags.env_presence(other, None)
            if found is None
            else flags.flag_presence(found.name, None)
        )
        assert presence is Presence.PRESENT, other


@pytest.mark.parametrize(
    "engine", ["vllm", "sglang", "tokenspeed", "tensorrt-llm", "llamacpp", "ollama"]
)
def test_names_are_of_the_very_version_that_is_planned(engine: str) -> None:
    """The version a recipe is for by default was read itself, not another build of it."""
    catalog = Catalog()
    serving = catalog.serving(engine)
    version = catalog.engine(engine).default_version
    assert serving.table_versions.get(version, version) in catalog.flags(serving.table).read
    assert not serving.other_build


def test_settings_name_flags_that_exist() -> None:
    """Every flag that a setting names is in its engine's table, where that is whole."""
    catalog = Catalog()
    for engine in catalog.command_engines().engines:
        if engine.table is None or catalog.flags(engine.table).partial:
            continue
        flags = FlagTable(catalog.flags(engine.table))
        for spelling in (each for listed in engine.settings.values() for each in listed):
            name = spelling.partition(":")[0]
            if name.startswith("-"):
                assert flags.flag(name) is not None, name


def test_published_recipes_use_flags_that_exist() -> None:
    """Every flag that the recipes of Kimi K3 print for an engine is in that engine's table, but
    those whose change of name is known; and every key of a file of settings in its own.
    """
    catalog = Catalog()
    changed = {change.name for change in catalog.name_changes()}
    for recipe in catalog.recipes("kimi-k3").recipes:
        if recipe.engine not in ("vllm", "sglang", "tokenspeed", "atom", "tensorrt-llm"):
            continue
        flags = FlagTable(catalog.flags(recipe.engine))
        for path in recipe.keys:
            presence = flags.key_presence(path, str(recipe.engine_version))
            assert presence is Presence.PRESENT, (recipe.id, path)
        for argument in recipe.arguments:
            name = argument.split()[0]
            assert flags.flag(name) is not None or name in changed, (recipe.id, name)


def test_a_table_with_a_defect(tmp_path: Path) -> None:
    """A flag table with a wrong type or an unknown source is refused with its path."""
    (tmp_path / "flags").mkdir()
    (tmp_path / "sources.toml").write_text('[s]\ntitle = "S"\nretrieved = 2026-01-01\n')
    head = 'engine = "e"\nread = ["1"]\nkind = "derived"\nas_of = 2026-01-01\n'
    (tmp_path / "flags/a.toml").write_text(f'{head}source = "s"\n[flags]\n"--x" = {{ type = 3 }}\n')
    (tmp_path / "flags/b.toml").write_text(f'{head}source = "t"\n[flags]\n')
    for name, problem in (("a", "wrong_type"), ("b", "unknown_source")):
        with pytest.raises(FactsError) as caught:
            Catalog(tmp_path).flags(name)
        assert caught.value.defects[0].problem == problem


@pytest.mark.shared
def test_the_table_agrees_with_the_help_text() -> None:
    """Flags of vLLM 0.32.0, and whether each takes a value, are those its own help prints."""
    beside = Path(__file__).resolve().parents[3].parent / "shared"
    path = Path(os.environ.get("HEAVYLIFT_SHARED", beside)) / "data/engine_flags"
    if not path.is_dir():
        pytest.skip("no reference data here")
    printed = (path / "vllm_serve_help.txt").read_text("utf-8")
    options = dict(
        reversed(pair)
        for pair in re.findall(
            r"(?m)^  ((?:-\w+, )?(--[a-z][\w-]*)[^\n]*(?:\n {4,23}\S[^\n]*)?)", printed
        )
    )
    flags = Catalog().flags("vllm").flags
    assert options.keys() - {"--help"} <= flags.keys()
    for name, text in options.items():
        if name != "--help":
            takes = re.search(re.escape(name) + r" [A-Z{\[]", text) is not None
            assert flags[name].takes_value is takes, name
