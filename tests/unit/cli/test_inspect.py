"""`heavylift inspect`, `heavylift checksum` and plans from a hub, as they are typed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heavylift.cli.checksum import duration
from heavylift.devserver.hub import HubServer
from heavylift.devserver.sparse_checkpoint import (
    SparseTensor,
    safetensors_variant,
    write_checkpoint,
    write_file,
)
from heavylift.facts.catalog import Catalog

Run = Callable[..., Any]
SECRET = "hf_thistokenmuststaysecret"  # noqa: S105 - a made-up one
INDEX = "model.safetensors.index.json"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A Llama-3.1-8B without its weights, on a hub and in a folder at once."""
    known = Catalog().model("llama-3.1-8b")
    folder = tmp_path / "hub/acme/some-llama"
    write_checkpoint(known, Catalog().family("llama"), safetensors_variant(known), folder)
    return folder


@pytest.fixture
def hub(llama: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that the environment names."""
    with HubServer(root=llama.parents[1]) as server:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(llama.parent / "nowhere"))
        yield server


def test_a_known_model_is_shown_from_the_facts(run: Run) -> None:
    """Totals, parts, layers; 80 columns; the next command is one that can be typed."""
    ran = run("inspect", "kimi-k3")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Parameters: 2,779.93 B in all, 104.19 B active for a token of text" in lines
    assert lines[:2] == [
        "✓ SOUND  safetensors, from the facts; nothing was read",
        "Kimi-K3, MXFP4 experts, bf16 rest",
    ]
    assert lines[-1] == "next: heavylift plan kimi-k3 --on 8xMI355X"
    assert ran.err == ""


@pytest.mark.parametrize("model", Catalog().ids("models"))
def test_every_model_of_the_catalogue_is_shown(run: Run, model: str) -> None:
    """Also one whose config nobody has seen; where only a size is known, that is what is said."""
    ran = run("inspect", model, "--json")
    if ran.status == 0:
        assert json.loads(ran.out)["total_params"] > 0
    else:
        assert json.loads(ran.out)["error"]["code"] == "CKPT032"


def test_a_folder_is_shown_and_is_json_with_the_same_fields(run: Run, llama: Path) -> None:
    """The record has what the screen has."""
    ran = run("inspect", str(llama))
    record = json.loads(run("inspect", str(llama), "--json").out)
    assert (ran.status, record["sound"], record["origin"]) == (0, True, "files")
    assert f"{record['total_params'] / 1e9:,.2f} B in all" in ran.out
    assert sum(row["bytes"] for row in record["stored"]) == record["tensor_bytes"]
    assert sum(row["bytes"] for row in record["roles"]) == record["tensor_bytes"]
    in_layers = sum(row["bytes_each"] * len(row["layers"]) for row in record["layers"])
    assert in_layers + record["other_bytes"] == record["tensor_bytes"]


def test_a_broken_checkpoint_ends_with_status_1(run: Run, llama: Path) -> None:
    """The missing shard is named; the counts are of what is there."""
    first = min(llama.glob("*.safetensors"))
    first.unlink()
    ran = run("inspect", str(llama))
    assert ran.status == 1
    assert "UNSOUND" in ran.out
    assert first.name in ran.out
    assert "next:" not in ran.out


def test_a_wrong_total_is_remarked_on_and_the_folder_is_planned(run: Run, llama: Path) -> None:
    """An index's own sum that is wrong stops neither inspecting nor planning."""
    index = json.loads((llama / INDEX).read_text())
    index["metadata"]["total_size"] += 1
    (llama / INDEX).write_text(json.dumps(index))
    shown = run("inspect", str(llama))
    assert (shown.status, "remark" in shown.out) == (0, True)
    planned = run("plan", str(llama), "--on", "1xH100")
    assert planned.status == 0
    assert "total_size is not the sum" in planned.err


def test_a_plan_asks_a_hub_and_says_what_for(run: Run, hub: HubServer) -> None:
    """A model the facts do not know is planned from its headers on the hub."""
    ran = run("plan", "acme/some-llama", "--on", "1xH100")
    assert ran.status == 0
    host = hub.url.removeprefix("http://")
    assert f"asking {host} for the list of files and the headers of acme/some-llama" in ran.err
    assert "no weights are read" in ran.err


def test_a_token_is_named_by_its_place_and_never_shown(
    run: Run, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither screen nor JSON nor error holds it."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    hub.faults.token = SECRET
    for ran in (
        run("inspect", "acme/some-llama"),
        run("inspect", "acme/some-llama", "--json"),
        run("inspect", "acme/nothing"),
    ):
        assert SECRET not in ran.out + ran.err
        assert "HF_TOKEN" in ran.err


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("inspect", "acme/nothing"), 5, "HUB005"),
        (("inspect", "no-such-model"), 3, "FACT010"),
        (("inspect", "/no/such/folder"), 3, "CKPT021"),
        (("inspect", "./here"), 3, "CKPT021"),
        (("inspect", "acme/some-llama", "--hub", "nobody"), 2, "nobody"),
        (("plan", "acme/nothing", "--on", "1xH100"), 5, "HUB005"),
        (("checksum", "/no/such/folder"), 3, "CKPT021"),
        (("checksum", ".", "--against", "/no/such/list"), 3, "CKPT025"),
        (("checksum", ".", "--against", "/dev/null"), 3, "CKPT030"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_is_not_there_has_a_code(
    run: Run, words: tuple[str, ...], status: int, code: str
) -> None:
    """A model, a name, a folder, a hub, a list."""
    ran = run(*words)
    assert ran.status == status
    assert code in ran.err


def test_without_a_network_there_is_a_sentence(
    run: Run, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forbidden by a variable: it is named, and nothing is asked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ran = run("plan", "acme/some-llama", "--on", "1xH100")
    assert ran.status == 5
    assert "HF_HUB_OFFLINE" in ran.err
    assert hub.asked == []


# --- checksum ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shard of some bytes."""
    place = tmp_path / "model"
    place.mkdir()
    write_file(place / "a.safetensors", [SparseTensor(name="w", dtype="U8", shape=(1000,))])
    return place


def test_digests_are_written_and_compared(run: Run, folder: Path, tmp_path: Path) -> None:
    """What one run writes is a list for the next; a flipped bit is named with both digests."""
    sums = tmp_path / "SHA256SUMS"
    first = run("checksum", str(folder), "--write", str(sums))
    assert (first.status, "Nobody says" in first.out) == (0, True)
    digest = hashlib.sha256((folder / "a.safetensors").read_bytes()).hexdigest()
    assert sums.read_text() == f"{digest}  a.safetensors\n"
    again = run("checksum", str(folder), "--against", str(sums))
    assert (again.status, "1 not read again" in again.out) == (0, True)
    raw = bytearray((folder / "a.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "a.safetensors").write_bytes(raw)
    broken = run("checksum", str(folder), "--against", str(sums), "--reread")
    assert broken.status == 1
    assert "other bytes" in broken.out
    assert digest in broken.out
    record = json.loads(run("checksum", str(folder), "--against", str(sums), "--json").out)
    assert record["files"][0]["state"] == "differs"


def test_a_list_that_cannot_be_written_is_said(run: Run, folder: Path, tmp_path: Path) -> None:
    """The check was made; where its list should go is not there."""
    ran = run("checksum", str(folder), "--write", str(tmp_path / "no/such/SUMS"))
    assert ran.status == 4
    assert "ENV030" in ran.err


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.4, "0 s"), (59, "59 s"), (598, "9 min 58 s"), (7500, "2 h 05 min")]
)
def test_times_are_words(seconds: float, expected: str) -> None:
    """In seconds, minutes, hours."""
    assert duration(seconds) == expected
