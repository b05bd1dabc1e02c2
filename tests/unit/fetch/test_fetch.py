"""Fetching a model from a hub on this machine: what is asked first, what arrives, what is kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from heavylift.checkpoint.hub_settings import HubId
from heavylift.checkpoint.listing import ListedFile
from heavylift.cli.main import main
from heavylift.devserver.hub import HubServer
from heavylift.errors import HeavyliftError
from heavylift.fetch import room as rooms
from heavylift.fetch.licence import stated_licence
from heavylift.fetch.selection import select

pytest.importorskip("huggingface_hub")

MODEL = "acme/tiny"
SECRET = "hf_thistokenmuststaysecret"  # noqa: S105 - a made-up one
SHARD = "model.safetensors"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with a small whole model: a shard, a config, other forms of the weights."""
    folder = tmp_path / "hub" / MODEL
    (folder / "original").mkdir(parents=True)
    raw = json.dumps({"w": {"dtype": "U8", "shape": [300_000], "data_offsets": [0, 300_000]}})
    data = os.urandom(300_000)
    (folder / SHARD).write_bytes(len(raw).to_bytes(8, "little") + raw.encode() + data)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"a": 1}')
    (folder / "pytorch_model.bin").write_bytes(b"x" * 1000)
    (folder / "original/params.json").write_text("{}")
    with HubServer(root=tmp_path / "hub") as server:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server


def run(*words: str) -> int:
    """The exit status of `heavylift fetch …`."""
    with pytest.raises(SystemExit) as left:
        main(["fetch", *words])
    assert isinstance(left.value.code, int)
    return left.value.code


def fetched(to: Path, *words: str) -> int:
    """Fetch the model into a folder with its licence acknowledged."""
    return run(MODEL, "--to", str(to), "--accept-licence", *words)


def test_a_model_arrives_whole_and_checked(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights of one form and what is beside them; every shard compared with the hub's digest."""
    to = tmp_path / "to"
    assert fetched(to, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["transferred"]
    states = {file["path"]: file["state"] for file in report["integrity"]["files"]}
    assert states == {
        SHARD: "ok",
        "config.json": "recorded",
        "tokenizer.json": "recorded",
        "original/params.json": "recorded",
    }
    source = hub.root / MODEL / SHARD
    assert (to / SHARD).read_bytes() == source.read_bytes()
    assert not (to / "pytorch_model.bin").exists()


def test_the_licence_is_shown_and_asked_for_once(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is transferred before it is acknowledged; another one is asked for again."""
    hub.faults.licence = "modified-mit"
    to = tmp_path / "to"
    assert run(MODEL, "--to", str(to)) == 2
    said = capsys.readouterr().err
    assert "modified-mit" in said
    assert f"heavylift fetch {MODEL} --to {to} --accept-licence" in said
    assert not to.exists()
    assert fetched(to) == 0
    assert run(MODEL, "--to", str(to)) == 0
    hub.faults.licence = None
    assert run(MODEL, "--to", str(to)) == 2
    assert "USE086" in capsys.readouterr().err


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """A disk with so many bytes free."""
    disk = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(rooms, "shutil", disk)


@pytest.mark.parametrize(
    ("free", "words", "status"), [(10, (), 4), (400_000, (), 4), (400_000, ("--tight",), 0)]
)
@pytest.mark.usefixtures("small_disk")
def test_room_is_looked_at_before_anything_is_transferred(
    hub: HubServer, tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    """Too little is refused; enough for one copy only is refused unless asked for."""
    assert fetched(tmp_path / "to", *words) == status
    assert (tmp_path / "to").exists() == (status == 0)
    assert any("/resolve/" in each.path for each in hub.asked) == (status == 0)


def test_a_dry_run_only_tells(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes, room and licence; no file is asked for."""
    assert run(MODEL, "--to", str(tmp_path / "to"), "--dry-run", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    size = (hub.root / MODEL / SHARD).stat().st_size
    assert (report["weights_bytes"], report["licence"], report["transferred"]) == (
        size,
        "other",
        False,
    )
    assert report["safe_bytes"] == 2 * size
    assert not any("/resolve/" in each.path for each in hub.asked)


def test_a_lost_connection_is_taken_up(hub: HubServer, tmp_path: Path) -> None:
    """The transfer asks for the rest of a file that was cut off, and the file is whole."""
    source = hub.root / MODEL / SHARD
    size = 24_000_000  # the library writes in pieces of ten million bytes
    raw = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    source.write_bytes(len(raw).to_bytes(8, "little") + raw.encode() + os.urandom(size))
    hub.faults.cut_bytes = 12_000_000
    hub.faults.cut_times = 1
    assert fetched(tmp_path / "to") == 0
    assert [each.range for each in hub.asked if each.range] == ["bytes=10485760-"]
    assert (tmp_path / "to" / SHARD).read_bytes() == source.read_bytes()


def test_what_is_there_is_not_fetched_again(hub: HubServer, tmp_path: Path) -> None:
    """The same command again reads lists, and no shard."""
    to = tmp_path / "to"
    assert fetched(to) == 0
    hub.asked.clear()
    assert fetched(to) == 0
    assert not [each for each in hub.asked if each.method == "GET" and SHARD in each.path]


def test_bytes_that_are_not_those_of_the_hub_end_with_status_1(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shard that was altered after it arrived is named, with both digests."""
    to = tmp_path / "to"
    assert fetched(to) == 0
    status = (to / SHARD).stat()
    raw = bytearray((to / SHARD).read_bytes())
    raw[-1] ^= 1
    (to / SHARD).write_bytes(raw)
    os.utime(to / SHARD, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    # The transfer trusts its own note of the file; the check afterwards does not.
    (to / f".cache/huggingface/download/{SHARD}.metadata").touch()
    capsys.readouterr()
    assert fetched(to) == 1
    out = capsys.readouterr().out
    assert "other bytes" in out
    assert hashlib.sha256((hub.root / MODEL / SHARD).read_bytes()).hexdigest() in out


def test_the_token_goes_to_the_hub_and_no_further(
    hub: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Files come from a store on another port; the token stays at the hub and out of every text."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with HubServer(root=hub.root) as store:
        hub.faults.token = SECRET
        hub.faults.send_on = store.url.replace("127.0.0.1", "localhost")
        assert fetched(tmp_path / "to") == 0
        assert store.asked
        assert {each.authorization for each in store.asked} == {None}
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize(("status", "code"), [(401, "HUB003"), (403, "HUB004"), (404, "HUB005")])
def test_a_refusal_of_files_is_a_sentence(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, code: str
) -> None:
    """The list is open, the files are not: the code is that of reading."""
    hub.faults.refuse = status
    assert fetched(tmp_path / "to") == 5
    assert code in capsys.readouterr().err


@pytest.fixture
def modelscope(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """The same hub, asked as ModelScope is."""
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    return hub


def from_modelscope(to: Path, *words: str) -> int:
    """Fetch the model from ModelScope into a folder with its licence acknowledged."""
    return fetched(to, "--hub", "modelscope", *words)


def large_shard(hub: HubServer, size: int) -> bytes:
    """A shard of so many bytes on the hub; what it holds."""
    raw = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    whole = len(raw).to_bytes(8, "little") + raw.encode() + os.urandom(size)
    (hub.root / MODEL / SHARD).write_bytes(whole)
    return whole


def asked_for_shard(hub: HubServer) -> list[str | None]:
    """The ranges in which the shard was asked for."""
    return [each.range for each in hub.asked if SHARD in each.path]


def test_a_model_of_modelscope_arrives_whole_and_checked(
    modelscope: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any library: files over its own routes, the licence it states, every digest of its
    list compared.
    """
    modelscope.faults.licence = "Apache License 2.0"
    to = tmp_path / "to"
    assert from_modelscope(to, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["licence"], report["revision"]) == ("Apache License 2.0", "master")
    assert {file["state"] for file in report["integrity"]["files"]} == {"ok"}
    assert (to / SHARD).read_bytes() == (modelscope.root / MODEL / SHARD).read_bytes()
    assert (to / "original/params.json").read_text() == "{}"
    assert not list(to.rglob("*.incomplete"))
    modelscope.asked.clear()
    assert from_modelscope(to) == 0
    assert asked_for_shard(modelscope) == []


def test_a_connection_to_modelscope_that_is_lost_is_taken_up(
    modelscope: HubServer, tmp_path: Path
) -> None:
    """Only the rest of a file that was cut off is asked for."""
    whole = large_shard(modelscope, 3_000_000)
    modelscope.faults.cut_bytes = 1_000_000
    modelscope.faults.cut_times = 2
    assert from_modelscope(tmp_path / "to") == 0
    assert asked_for_shard(modelscope) == [None, "bytes=1000000-", "bytes=2000000-"]
    assert (tmp_path / "to" / SHARD).read_bytes() == whole


def test_what_a_killed_fetch_had_is_taken_up_by_the_next(
    modelscope: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hub that refuses midway ends the command; the next one asks for the rest. A file that is
    another one by then is begun anew.
    """
    large_shard(modelscope, 3_000_000)
    modelscope.faults.cut_bytes = 1_000_000
    modelscope.faults.longer_by = 7  # what a mirror that serves another file's range claims
    assert from_modelscope(tmp_path / "to") == 5
    assert "HUB008" in capsys.readouterr().err
    modelscope.faults.longer_by = 0
    modelscope.faults.cut_bytes = None
    modelscope.asked.clear()
    assert from_modelscope(tmp_path / "to") == 0
    assert asked_for_shard(modelscope) == ["bytes=1000000-"]
    whole = large_shard(modelscope, 3_000_000)
    (tmp_path / "to" / SHARD).unlink()
    modelscope.asked.clear()
    assert from_modelscope(tmp_path / "to") == 0
    assert asked_for_shard(modelscope) == [None]
    assert (tmp_path / "to" / SHARD).read_bytes() == whole


def test_a_mirror_that_goes_by_no_ranges_is_read_from_the_start(
    modelscope: HubServer, tmp_path: Path
) -> None:
    """The whole file comes again and nothing of it stands twice."""
    whole = large_shard(modelscope, 3_000_000)
    modelscope.faults.cut_bytes = 1_000_000
    modelscope.faults.cut_times = 1
    modelscope.faults.ignore_ranges = True
    assert from_modelscope(tmp_path / "to") == 0
    assert (tmp_path / "to" / SHARD).read_bytes() == whole


def test_a_hub_that_always_cuts_at_once_is_given_up(
    modelscope: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a byte more in three times: an error, and not a loop."""
    large_shard(modelscope, 3_000_000)
    modelscope.faults.cut_bytes = 0
    assert from_modelscope(tmp_path / "to") == 5
    assert "HUB008" in capsys.readouterr().err
    assert not (tmp_path / "to" / SHARD).exists()


@pytest.mark.parametrize(("status", "code"), [(401, "HUB003"), (404, "HUB005"), (500, "HUB007")])
def test_a_refusal_of_modelscope_is_a_sentence(
    modelscope: HubServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
    code: str,
) -> None:
    """As that of any hub."""
    modelscope.faults.refuse = status
    assert from_modelscope(tmp_path / "to") == 5
    assert code in capsys.readouterr().err


# --- which files ---------------------------------------------------------------------------------


def files(*paths: str) -> tuple[ListedFile, ...]:
    """Files of ten bytes."""
    return tuple(ListedFile(path=path, size=10) for path in paths)


def test_one_form_of_the_weights_is_chosen() -> None:
    """Safetensors at the root; or the parts of the GGUF that is meant."""
    listed = files(
        "config.json",
        "model-1.safetensors",
        "original/consolidated.00.pth",
        "Q4/m-Q4-00001-of-00002.gguf",
        "Q4/m-Q4-00002-of-00002.gguf",
        "Q8/m-Q8.gguf",
    )
    whole = select(HubId(id="a/b"), listed)
    assert [file.path for file in whole.files] == ["config.json", "model-1.safetensors"]
    part = select(HubId(id="a/b", part="Q4"), listed)
    assert [file.path for file in part.weights] == [
        "Q4/m-Q4-00001-of-00002.gguf",
        "Q4/m-Q4-00002-of-00002.gguf",
    ]
    assert (part.weights_bytes, part.total_bytes) == (20, 30)
    one = select(HubId(id="a/b", part="model-1.safetensors"), listed)
    assert [file.path for file in one.weights] == ["model-1.safetensors"]


@pytest.mark.parametrize(
    ("paths", "part", "code"),
    [
        (("a/../../x", "m.safetensors"), None, "HUB015"),
        (("/etc/passwd",), None, "HUB015"),
        (("a\\..\\b",), None, "HUB015"),
        (("config.json",), None, "CKPT022"),
        (("a.gguf", "b.gguf"), None, "CKPT029"),
        (("a.gguf", "b.gguf"), "c", "CKPT031"),
    ],
)
def test_a_list_that_leads_out_or_nowhere_is_refused(
    paths: tuple[str, ...], part: str | None, code: str
) -> None:
    """Paths out of the folder, no weights, several models, an unknown part."""
    with pytest.raises(HeavyliftError) as caught:
        select(HubId(id="a/b", part=part), files(*paths))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("information", "expected"),
    [
        (b'{"cardData": {"license": "mit"}}', "mit"),
        (
            b'{"cardData": {"license": "other", "license_name": "own", "license_link": "x"}}',
            "other · own · x",
        ),
        (b'{"cardData": {"license": ["mit", "apache-2.0"]}}', "mit, apache-2.0"),
        (b'{"tags": [1, "license:apache-2.0"]}', "apache-2.0"),
        (b'{"cardData": {"license": "\\u001b[2J"}}', "\\x1b[2J"),
        (b'{"cardData": []}', None),
        (b"[]", None),
        (b"", None),
        (b"{" * 100_000, None),
    ],
)
def test_a_licence_is_what_the_hub_states(information: bytes, expected: str | None) -> None:
    """The card first, then the tags; nothing else is taken for one."""
    assert stated_licence(information) == expected
