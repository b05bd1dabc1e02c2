"""Units, ranges and words of the values in facts files."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import heavylift.facts
from heavylift.facts.catalog import Catalog
from heavylift.facts.limits import UNITS, WORDS

WriteFacts = Callable[..., Catalog]

SCHEMAS = [
    importlib.import_module(f"heavylift.facts.{path.stem}")
    for path in Path(heavylift.facts.__file__).parent.glob("*schema.py")
]
RECORDS = {
    value
    for module in SCHEMAS
    for value in vars(module).values()
    if dataclasses.is_dataclass(value) and isinstance(value, type)
}


def fact_fields() -> Iterator[tuple[type, str]]:
    """Every field of the schema that holds a `Fact`, alone, optional or in a table."""
    for record in RECORDS:
        for name, hint in typing.get_type_hints(record).items():
            if "schema.Fact[" in str(hint):
                yield record, name


def test_every_fact_of_the_schema_has_a_unit() -> None:
    """A field without a declared unit could be written in any."""
    assert set(UNITS) == set(fact_fields())


def test_words_are_those_of_fields() -> None:
    """A table of words for a field that does not exist would check nothing."""
    fields = {(record, entry.name) for record in RECORDS for entry in dataclasses.fields(record)}
    assert set(WORDS) <= fields


CARD = "gpus/card.toml"
RUNNER = "engines/runner.toml"
NAMEPLATE = 'memory_nameplate = { value = 80, unit = "GB" }'
VISIBLE = "value = 85_000_000_000"
MEMORY = 'id = "buffer"\nsegment = "workspace"\nlow = "width*ranks"'


@pytest.mark.parametrize(
    "broken",  # file, old text, new text; path and problem of the first defect
    [
        (CARD, VISIBLE, "value = 0", "memory_visible.value", "zero"),
        (CARD, VISIBLE, "value = -5", "memory_visible.value", "negative"),
        (CARD, "value = 80,", "value = 0,", "memory_nameplate.value", "zero"),
        (CARD, "value = 80,", "value = nan,", "memory_nameplate.value", "not_finite"),
        (CARD, "value = 2.5", "value = inf", "memory_bandwidth.value", "not_finite"),
        (CARD, "value = 2.5", "value = -inf", "memory_bandwidth.value", "not_finite"),
        (CARD, VISIBLE, "value = 85_899_345_921", "memory_visible", "not_the_nameplate"),
        (CARD, VISIBLE, "value = 81_559", "memory_visible", "not_the_nameplate"),
        (CARD, 'unit = "bytes"', 'unit = "MiB"', "memory_visible.unit", "wrong_unit"),
        (CARD, 'unit = "GB"', 'unit = "GiB"', "memory_nameplate.unit", "wrong_unit"),
        (CARD, 'unit = "TB/s"', 'unit = "GB/s"', "memory_bandwidth.unit", "wrong_unit"),
        (CARD, "vendor", 'id = "x"\nvendor', "id", "unknown_key"),
        ("nodes/box.toml", "value = 2", "value = 0", "gpus_per_node.value", "zero"),
        ("nodes/box.toml", '"GPUs"', '"GPU"', "gpus_per_node.unit", "wrong_unit"),
        ("models/small.toml", "value = 8", "value = 0", "dims.width.value", "zero"),
        ("models/small.toml", '"channels"', '"chanels"', "dims.width.unit", "wrong_unit"),
        (
            "models/small.toml",
            '2, unit = "heads"',
            '2, unit = "flag"',
            "dims.heads.value",
            "not_one_of",
        ),
        ("models/small.toml", '"tokens"', '"k tokens"', "max_context.unit", "wrong_unit"),
        ("models/small.toml", "[0, 1]", "[-1, 1]", "layers.all.value[0]", "negative"),
        ("models/small.toml", "[0, 1]", "[1, 1]", "layers.all", "layers_not_ascending"),
        (RUNNER, "default = 0.9", "default = 2.5", "budgets[0].default", "not_a_fraction"),
        (RUNNER, "default = 0.9", "default = nan", "budgets[0].default", "not_finite"),
        (RUNNER, 'base = "total"', 'base = "totl"', "budgets[0].base", "not_one_of"),
        (RUNNER, '["weights"]', '["wieghts"]', "budgets[0].inside[0]", "not_one_of"),
        (RUNNER, 'segment = "workspace"', 'segment = "w"', "memory[0].segment", "not_one_of"),
        (RUNNER, 'low = "width*ranks"', "low = -1", "memory[0].low", "negative"),
        ("recipes/small.toml", "gpus = 2", "gpus = 0", "recipes[0].gpus", "zero"),
    ],
)
def test_a_value_out_of_its_limits_is_a_defect(facts: WriteFacts, broken: tuple[str, ...]) -> None:
    """Memory is above zero and finite, in the unit the planner computes in, with known words."""
    file, old, new, path, problem = broken
    found = [(defect.path, defect.problem) for defect in facts(file, old, new).check()]
    assert found[0] == (f"{file}: {path}", problem)


@pytest.mark.parametrize("shown", [80 * 10**9 // 2, 80 * 2**30])
def test_a_card_may_show_what_its_nameplate_can_mean(facts: WriteFacts, shown: int) -> None:
    """A nameplate's GB may be GiB, and the driver may keep a part back."""
    assert facts(CARD, VISIBLE, f"value = {shown}").check() == ()


def test_a_flag_may_be_off(facts: WriteFacts) -> None:
    """A dimension in the unit `flag` is 0 or 1; other dimensions are above zero."""
    added = facts("models/small.toml", "[layers]", 'tied = { value = 0, unit = "flag" }\n[layers]')
    assert added.check() == ()


def rule(text: str) -> tuple[str, str, str]:
    """The runner's memory rule, replaced."""
    return RUNNER, MEMORY, f'id = "buffer"\nsegment = "workspace"\n{text}'


def whole(text: str) -> tuple[str, str, str]:
    """The runner with more tables at its end."""
    return RUNNER, MEMORY, f"{MEMORY}\n{text}"


FIRST = "engines/runner.toml: memory.buffer"


@pytest.mark.parametrize(
    ("change", "path", "problem", "detail"),
    [
        (rule('low = "wdith"'), FIRST, "expression", "wdith: wdith"),
        (rule('low = 0\nhigh = "wdith"'), FIRST, "expression", "wdith: wdith"),
        (rule('low = "width/0"'), FIRST, "expression", "width/0"),
        (rule('low = "width/(width - 8)"'), FIRST, "expression", "width/(width - 8)"),
        (rule('low = "width/receives"'), FIRST, "expression", "width/receives"),
        (rule('low = "width/(ranks - 1)"'), FIRST, "expression", "width/(ranks - 1)"),
        (rule('low = "max_num_seqs/2"'), FIRST, "expression", "max_num_seqs/2"),
        (rule('low = "9**9**9"'), FIRST, "expression", "9**9**9"),
        (rule('low = "__import__(1)"'), FIRST, "expression", "__import__(1)"),
        (rule('low = "1 - width"'), FIRST, "negative", "-7"),
        (rule("low = 2\nhigh = 1"), FIRST, "high_below_low", "1 < 2"),
        (rule('low = "2*width"\nhigh = "width"'), FIRST, "high_below_low", "8 < 16"),
        (rule('low = 0\nsince = "0.9"'), "memory[0].since", "unknown_version", "0.9"),
        (rule('low = 0\nuntil = "2.0"'), "memory[0].until", "unknown_version", "2.0"),
        (rule('low = 0\nsince = "1.0"\nuntil = "1.0"'), "memory[0]", "empty_scope", "1.0 ≥ 1.0"),
        (rule('low = 0\nvendors = ["mkaer"]'), "memory[0].vendors", "unknown_vendor", "mkaer"),
        (rule('low = 0\nfamilies = ["plian"]'), "memory[0].families", "unknown_family", "plian"),
        (
            whole(
                '[[kv_dtypes]]\nname = "a"\nbytes_per_element = 1\naliases = ["b"]\n'
                '[[kv_dtypes]]\nname = "b"\nbytes_per_element = 2'
            ),
            "kv_dtypes.b",
            "shared_name",
            "b: a",
        ),
        (
            whole('[[shard_overrides]]\nrole = "expert"\nshard = "tensor"\nwhen = "always"'),
            "shard_overrides[0]",
            "unknown_role",
            "expert",
        ),
        (
            whole('[[pipelines]]\nremainder = "last"\neverywhere = ["visoin"]'),
            "pipelines[0]",
            "unknown_role",
            "visoin",
        ),
        (
            whole('[[pipelines]]\nremainder = "last"\nseen_source = "hearsay"'),
            "pipelines[0].seen_source",
            "unknown_source",
            "hearsay",
        ),
        (
            (RUNNER, "default = 0.9", 'default_reserved = "width*ranks"'),
            "budgets[0].default_reserved",
            "expression",
            "width*ranks: width",
        ),
        (
            (RUNNER, "default = 0.9", 'default_reserved = "ranks/2"'),
            "budgets[0].default_reserved",
            "expression",
            "ranks/2",
        ),
        (
            (RUNNER, "read = true", 'read = true\n[[versions]]\nid = "1.0"\nread = true'),
            "versions: 1.0",
            "shared_name",
            "1.0",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant_is_a_defect(
    facts: WriteFacts, change: tuple[str, str, str], path: str, problem: str, detail: str
) -> None:
    """Unknown names, divisions by zero, bounds out of order, scopes that never hold."""
    (defect,) = facts(*change).check()
    assert defect.path in {path, f"{RUNNER}: {path}"}
    assert (defect.problem, defect.detail) == (problem, detail)


@pytest.mark.parametrize(
    "change",
    [
        rule('low = "stage_all_layers*all_layers*max_num_batched_tokens"'),
        rule('low = 0\nhigh = "ceil(visible_bytes/50)*vision*receives*start_layer*rank_experts"'),
        rule('low = 0\nvendors = ["maker"]\nfamilies = ["plain"]\nsince = "1.0"'),
    ],
)
def test_a_rule_may_use_the_names_of_model_workload_layout_and_stage(
    facts: WriteFacts, change: tuple[str, str, str]
) -> None:
    """The vocabulary of memory rules, and a scope of known names."""
    assert facts(*change).check() == ()


@pytest.mark.parametrize(
    ("change", "path", "problem", "detail"),
    [
        (("gpus/card.toml", '"the card"', '"--"'), "gpus/card.toml", "blank_name", ""),
        (
            ("models/small.toml", '["runner"]', '["rnuner"]'),
            "models/small.toml: variants.native",
            "unknown_engine",
            "rnuner",
        ),
        (
            (
                "families/plain/architecture.toml",
                "[dim_defaults]",
                "[config_layers]\nsome = {}\n[dim_defaults]",
            ),
            "families/plain/architecture.toml: config_layers.some",
            "unknown_layer_set",
            "some",
        ),
        (
            ("families/plain/architecture.toml", 'elements = "width"', 'elements = "width - 8"'),
            "families/plain/architecture.toml: memory",
            "no_size",
            "small: width - 8 = 0",
        ),
        (
            ("families/plain/architecture.toml", '"width/heads"', '"width/0"'),
            "families/plain/architecture.toml: dim_defaults.head_dim",
            "expression",
            "width/0",
        ),
        (
            ("recipes/small.toml", '"some-other-engine"', '"runner"\nsince = "0.1"'),
            "recipes/small.toml: one.since",
            "unknown_version",
            "0.1",
        ),
        (
            ("recipes/small.toml", '"some-other-engine"', '"runner"\nfamilies = ["plian"]'),
            "recipes/small.toml: one.families",
            "unknown_family",
            "plian",
        ),
    ],
)
def test_names_between_files_must_mean_something(
    facts: WriteFacts, change: tuple[str, str, str], path: str, problem: str, detail: str
) -> None:
    """What refers to nothing, or comes out as nothing, is a defect where it is written."""
    found = [(defect.path, defect.problem, defect.detail) for defect in facts(*change).check()]
    assert found == [(path, problem, detail)]


def test_a_fraction_in_a_recipe_is_one(facts: WriteFacts) -> None:
    """The setting that is an engine's memory fraction is above 0 and at most 1."""
    catalog = facts(
        "recipes/small.toml",
        'engine = "some-other-engine"\nstatus = "verified"\ngpu_ids = ["card"]\ngpus = 2\n'
        "tensor_parallel_size = 2\nsettings = {",
        'engine = "runner"\nstatus = "verified"\ngpu_ids = ["card"]\ngpus = 2\n'
        "tensor_parallel_size = 2\nsettings = { share = 9.5,",
    )
    (defect,) = catalog.check()
    assert defect.path == "recipes/small.toml: one.settings.share"
    assert defect.problem == "not_a_fraction"


def test_two_families_of_one_model_type_are_a_defect(facts: WriteFacts, tmp_path: Path) -> None:
    """A config.json must lead to one family."""
    catalog = facts()
    source = (tmp_path / "families/plain/architecture.toml").read_text("utf-8")
    (tmp_path / "families/other").mkdir()
    (tmp_path / "families/other/architecture.toml").write_text(source, "utf-8")
    (defect,) = catalog.check()
    assert (defect.problem, defect.detail) == ("shared_name", "plain: other")


def test_files_whose_names_differ_in_punctuation_are_both_read(
    facts: WriteFacts, tmp_path: Path
) -> None:
    """`card.toml` and `ca-rd.toml` answer to one name, and each is asked for by its own."""
    catalog = facts()
    text = (tmp_path / "gpus/card.toml").read_text("utf-8")
    (tmp_path / "gpus/ca-rd.toml").write_text(text, "utf-8")
    assert catalog.gpu("ca-rd").id == "ca-rd"
    assert "shared_name" in {defect.problem for defect in catalog.check()}


def test_the_showcase_is_of_a_model_of_the_catalogue(facts: WriteFacts, tmp_path: Path) -> None:
    """First hints must not speak of a model nobody described."""
    catalog = facts()
    (tmp_path / "showcase.toml").write_text('model = "large"\nrack = "2xcard"\n')
    (defect,) = catalog.check()
    assert (defect.path, defect.problem) == ("showcase.toml: model", "unknown_model")
