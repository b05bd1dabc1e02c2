"""The tiny K3 and the header of the whole one."""

from __future__ import annotations

import hashlib
import random
import struct
from pathlib import Path

import pytest

from heavylift.checkpoint.gguf import Entry, GgufFile, GgufTensor, ValueType
from heavylift.checkpoint.gguf_file import read_gguf
from heavylift.checkpoint.gguf_writer import build, write_gguf
from heavylift.checkpoint.inventory import from_facts
from heavylift.devserver import tiny_k3
from heavylift.facts.catalog import Catalog


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with a numbered vocabulary of the tiny model's size."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    write_gguf(path, build(tiny_k3.numbered_tokenizer(49152), []), None)
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, vocabulary: Path) -> Path:
    """A tiny K3."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return tiny_k3.write_tiny_k3(path, tokenizer_from=vocabulary)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header of the whole K3."""
    return tiny_k3.write_k3_header(tmp_path_factory.mktemp("whole") / "whole.gguf")


def test_the_whole_header_has_the_parameters_and_bytes_of_the_text_model(whole: Path) -> None:
    """2,779,483,135,584 parameters in 1,561,150,781,824 bytes and 2,573 tensors.

    Parameters: the published 2,779,931,837,184 less the vision part, and A_log cut from 128 to the
    96 heads. llama.cpp prints 2.78 T and 1453.93 GiB for the file.
    """
    file = read_gguf(whole)
    assert len(file.tensors) == 2573
    assert sum(tensor.elements for tensor in file.tensors) == 2_779_483_135_584
    assert file.tensor_bytes == 1_561_150_781_824
    assert f"{file.tensor_bytes / 2**30:.2f}" == "1453.93"


def test_the_whole_header_takes_little_room(whole: Path) -> None:
    """3 MB on disk stand for 1.56 TB."""
    status = whole.stat()
    assert status.st_size > 1_561_000_000_000
    assert status.st_blocks * 512 < 5_000_000


def test_gguf_and_safetensors_hold_the_same_weights() -> None:
    """Role by role, the two tensor lists differ only where the converter says so."""
    catalog = Catalog()
    model = catalog.model("kimi-k3")
    family = catalog.family("kimi-k3")
    by_role: dict[str, dict[str, int]] = {"safetensors": {}, "gguf": {}}
    for form, params in by_role.items():
        variant = next(each for each in model.variants if each.format == form)
        for group in from_facts(model, family, variant).groups:
            params[group.role] = params.get(group.role, 0) + group.params_total
    native, gguf = by_role["safetensors"], by_role["gguf"]
    same = set(native) - {"vision", "projector", "kda_attention", "attn_res"}
    assert {role: gguf[role] for role in same} == {role: native[role] for role in same}
    # A_log is padded from 96 heads to 128 in the released files.
    assert native["kda_attention"] - gguf["kda_attention"] == 69 * (128 - 96)
    # Norm and projection of the attention residuals are multiplied into one vector.
    assert native["attn_res"] == 2 * gguf["attn_res"]


def test_the_tiny_model_has_the_architecture_of_the_whole(tiny: Path, whole: Path) -> None:
    """Same metadata keys and tensor names per layer kind; 36 million parameters in 70 MB."""
    small, large = read_gguf(tiny), read_gguf(whole)

    def architecture(file: GgufFile) -> set[str]:
        return {key for key in file.metadata if not key.startswith("tokenizer.")}

    def kinds(file: GgufFile) -> set[str]:
        return {tensor.name.split(".", 2)[-1] for tensor in file.tensors}

    assert architecture(small) == architecture(large)
    assert kinds(small) == kinds(large)
    assert sum(tensor.elements for tensor in small.tensors) == 36_137_080
    assert small.tensor_bytes == 70_103_520
    assert small.entry("kimi-k3.attention.head_count_kv").value == (0, 0, 0, 1, 0, 0, 0, 1, 1)


def test_the_same_seed_gives_the_same_file(tiny: Path, tmp_path: Path, vocabulary: Path) -> None:
    """Bit for bit, and another seed gives another one."""

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    again = tiny_k3.write_tiny_k3(tmp_path / "again.gguf", tokenizer_from=vocabulary)
    other = tiny_k3.write_tiny_k3(tmp_path / "other.gguf", tokenizer_from=vocabulary, seed=1)
    assert digest(again) == digest(tiny)
    assert digest(other) != digest(tiny)


def test_facts_of_the_tiny_model_match_its_file(tiny: Path) -> None:
    """The planner's view of the tiny model and the file agree on bytes."""
    catalog = Catalog()
    model = tiny_k3.tiny_model(catalog.model("kimi-k3"))
    (variant,) = model.variants
    inventory = from_facts(model, catalog.family("kimi-k3"), variant)
    assert inventory.bytes_total == read_gguf(tiny).tensor_bytes
    assert inventory.tensors == len(read_gguf(tiny).tensors)


def test_a_copied_vocabulary_keeps_all_but_the_template() -> None:
    """Tokens are taken over, other metadata is not, the chat template is our own."""
    tokens = Entry(ValueType.STRING, ("a", "b"))
    source = GgufFile(
        version=3,
        metadata={
            "general.name": Entry(ValueType.STRING, "other"),
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.chat_template": Entry(ValueType.STRING, "theirs"),
        },
        tensors=(),
        alignment=32,
        data_offset=0,
    )
    copied = tiny_k3.copied_tokenizer(source)
    assert set(copied) == {"tokenizer.ggml.tokens", "tokenizer.chat_template"}
    assert copied["tokenizer.ggml.tokens"] == tokens
    assert copied["tokenizer.chat_template"].value != "theirs"


def _tensor(name: str, dtype: str, dims: tuple[int, ...]) -> GgufTensor:
    size = {"F32": 4, "BF16": 2}.get(dtype)
    count = dims[0] * dims[1] if len(dims) > 1 else dims[0]
    return GgufTensor(
        name=name,
        dims=dims,
        dtype=dtype,
        offset=0,
        bytes=count * size if size else count // 32 * 17,
    )


RANDBYTES = random.Random(7).randbytes


def _floats(data: bytes, dtype: str) -> list[float]:
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    return list(struct.unpack(f"<{len(data) // 4}f", data))


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("row", [96, 128, 256, 512])
def test_random_weights_have_the_scale_of_their_row(dtype: str, row: int) -> None:
    """Mean near zero and root mean square within a factor two of row**-0.5."""
    tensor = _tensor("x.weight", dtype, (row, 64))
    values = _floats(tiny_k3.random_tensor(tensor, RANDBYTES), dtype)
    assert len(values) == row * 64
    rms = (sum(value * value for value in values) / len(values)) ** 0.5
    assert 0.5 < rms * row**0.5 < 2
    assert abs(sum(values) / len(values)) < rms / 10


def test_norms_are_ones_and_decay_rates_negative() -> None:
    """What must not be random about zero is not."""
    norm = _tensor("blk.0.attn_norm.weight", "F32", (8,))
    assert _floats(tiny_k3.random_tensor(norm, RANDBYTES), "F32") == [1.0] * 8
    rates = _floats(tiny_k3.random_tensor(_tensor("blk.0.ssm_a", "F32", (64,)), RANDBYTES), "F32")
    assert all(-2.7182818 < rate <= -1.0 for rate in rates)


def test_mxfp4_blocks_share_one_exponent() -> None:
    """Each 17-byte block begins with its scale."""
    tensor = _tensor("x_exps.weight", "MXFP4", (64, 4))
    data = tiny_k3.random_tensor(tensor, RANDBYTES)
    assert len(data) == 8 * 17
    assert set(data[0::17]) == {123}
