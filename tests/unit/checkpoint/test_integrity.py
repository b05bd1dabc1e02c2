"""Files against what was published: every way to be wrong, and what is not read twice."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from heavylift.checkpoint import integrity
from heavylift.checkpoint.integrity import FileIdentity, NoDigests, Progress, check
from heavylift.checkpoint.listing import ListedFile, parse_list
from heavylift.devserver.sparse_checkpoint import SparseTensor, write_file
from heavylift.errors import HeavyliftError
from heavylift.records.integrity import FileState, Integrity
from heavylift.state.digests import DigestStore

FIRST, SECOND = "model-1.safetensors", "model-2.safetensors"


class Kept(dict[FileIdentity, str]):
    """Digests in memory."""

    def put(self, identity: FileIdentity, sha256: str) -> None:
        """Keep one."""
        self[identity] = sha256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards of different bytes and equal length, and a text file."""
    place = tmp_path / "model"
    place.mkdir()
    for number, name in enumerate((FIRST, SECOND)):
        tensor = SparseTensor(name=f"layers.{number}.w", dtype="BF16", shape=(8, 4))
        write_file(place / name, [tensor])
    (place / "README.md").write_text("words\n")
    return place


def listed(folder: Path) -> tuple[ListedFile, ...]:
    """A list of the files as they are now."""
    return tuple(
        ListedFile(
            path=path.name,
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(folder.iterdir())
    )


def checked(
    folder: Path, against: tuple[ListedFile, ...] = (), digests: integrity.Digests | None = None
) -> Integrity:
    """The check of a folder."""
    store = NoDigests() if digests is None else digests
    return check(folder, against, store, clock=lambda: 0.0, progress=lambda _: None)


def states(found: Integrity) -> dict[str, FileState]:
    """File -> state."""
    return {file.path: file.state for file in found.files}


def test_files_that_are_what_was_published_are_sound(folder: Path) -> None:
    """Every file of the list is compared, and is what it should be."""
    found = checked(folder, listed(folder))
    assert (found.sound, found.compared, found.compared_with) == (True, 3, ("list",))
    assert set(states(found).values()) == {FileState.OK}


def test_without_a_list_digests_are_recorded(folder: Path) -> None:
    """Nobody says what they should be: nothing is called ok."""
    found = checked(folder)
    assert set(states(found).values()) == {FileState.RECORDED}
    assert (found.sound, found.compared) == (True, 0)
    expected = {file.path: file.sha256 for file in listed(folder)}
    assert {file.path: file.sha256 for file in found.files} == expected


def flip(folder: Path) -> None:
    """A bit of the data is another one."""
    raw = bytearray((folder / FIRST).read_bytes())
    raw[-1] ^= 1
    (folder / FIRST).write_bytes(raw)


def cut(folder: Path) -> None:
    """The last byte is missing."""
    (folder / FIRST).write_bytes((folder / FIRST).read_bytes()[:-1])


def lengthen(folder: Path) -> None:
    """A byte too many."""
    (folder / FIRST).write_bytes((folder / FIRST).read_bytes() + b"x")


def remove(folder: Path) -> None:
    """Not there."""
    (folder / FIRST).unlink()


def point(folder: Path) -> None:
    """A Git LFS pointer."""
    (folder / FIRST).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def dangle(folder: Path) -> None:
    """A link that leads nowhere."""
    (folder / FIRST).unlink()
    (folder / FIRST).symlink_to("nowhere")


def lead_out(folder: Path) -> None:
    """A link out of the folder."""
    (folder / FIRST).rename(folder.parent / "outside")
    (folder / FIRST).symlink_to(folder.parent / "outside")


def pipe(folder: Path) -> None:
    """A named pipe, which would wait for a writer for ever."""
    (folder / FIRST).unlink()
    os.mkfifo(folder / FIRST)


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        (flip, FileState.DIFFERS),
        (cut, FileState.TRUNCATED),
        (lengthen, FileState.TOO_LONG),
        (remove, FileState.MISSING),
        (point, FileState.POINTER),
        (dangle, FileState.MISSING),
        (lead_out, FileState.UNREADABLE),
        (pipe, FileState.UNREADABLE),
    ],
)
def test_a_spoiled_file_is_named(
    folder: Path, spoil: Callable[[Path], None], state: FileState
) -> None:
    """One file has the state, the others are ok, and the whole is not sound."""
    against = listed(folder)
    spoil(folder)
    found = checked(folder, against)
    assert states(found) == {FIRST: state, SECOND: FileState.OK, "README.md": FileState.OK}
    assert not found.sound


def swap(folder: Path) -> None:
    """Each shard lies under the other's name."""
    (folder / FIRST).rename(folder / "x")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "x").rename(folder / SECOND)


def test_swapped_files_say_whose_bytes_they_hold(folder: Path) -> None:
    """Equal lengths, so only the digests tell."""
    against = listed(folder)
    swap(folder)
    found = {file.path: file for file in checked(folder, against).files}
    assert (found[FIRST].state, found[FIRST].detail) == (FileState.SWAPPED, SECOND)
    assert (found[SECOND].state, found[SECOND].detail) == (FileState.SWAPPED, FIRST)


def test_swapped_files_of_different_lengths_are_swapped_and_not_cut_off(folder: Path) -> None:
    """A file as long as another of the list is read, to know whether it is that one."""
    write_file(folder / SECOND, [SparseTensor(name="layers.1.w", dtype="BF16", shape=(80, 4))])
    against = listed(folder)
    swap(folder)
    found = states(checked(folder, against))
    assert (found[FIRST], found[SECOND]) == (FileState.SWAPPED, FileState.SWAPPED)


def test_a_broken_header_is_a_defect_beside_the_digest(folder: Path) -> None:
    """Without a list a cut shard is still known by its header."""
    cut(folder)
    found = checked(folder)
    assert not found.sound
    assert [each.problem for each in found.defects] == ["file_truncated"]


def test_an_unchanged_file_is_not_read_again(folder: Path) -> None:
    """Path, inode, length and time of the last write tell; a touched file is read."""
    kept = Kept()
    first = checked(folder, digests=kept)
    again = checked(folder, digests=kept)
    assert (again.bytes_read, again.bytes_kept) == (0, first.bytes_read)
    assert all(file.kept for file in again.files)
    os.utime(folder / FIRST, ns=(0, 0))
    size = (folder / FIRST).stat().st_size
    assert checked(folder, digests=kept).bytes_read == size


def test_digests_outlive_the_process(folder: Path, tmp_path: Path) -> None:
    """They are stored, and replaced when a file is."""
    for content in (b"one", b"other"):
        (folder / FIRST).write_bytes(content)
        for kept in (0, (folder / FIRST).stat().st_size):
            with DigestStore(tmp_path / "digests.db") as store:
                found = checked(folder, digests=store)
            file = next(file for file in found.files if file.path == FIRST)
            assert file.sha256 == hashlib.sha256(content).hexdigest()
            assert file.kept == (kept > 0)


def test_an_interrupted_run_keeps_what_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the second file is read: the next run reads that one only."""
    kept = Kept()
    first_done = threading.Event()
    real = integrity._hash

    def slow(job: integrity._Job, stop: threading.Event, *rest: object) -> str | FileState:
        if job.file.path == SECOND:
            first_done.wait(10)
            assert stop.wait(10)
            raise integrity._Stop
        return real(job, stop, *rest)  # type: ignore[arg-type]

    def interrupt(_progress: Progress) -> None:
        if len(kept) == 2:
            first_done.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(integrity, "_hash", slow)
    with pytest.raises(KeyboardInterrupt):
        check(folder, (), kept, clock=lambda: 0.0, progress=interrupt)
    monkeypatch.setattr(integrity, "_hash", real)
    again = checked(folder, digests=kept)
    assert [file.path for file in again.files if not file.kept] == [SECOND]


def test_a_file_that_is_written_meanwhile_has_no_digest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is neither the old file nor the new one, and is not kept."""
    kept = Kept()
    real = integrity._hash

    def disturbed(job: integrity._Job, *rest: object) -> str | FileState:
        with job.path.open("ab") as file:
            file.write(b"more")
        return real(job, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(integrity, "_hash", disturbed)
    found = checked(folder, digests=kept)
    assert set(states(found).values()) == {FileState.CHANGED}
    assert not kept


def test_progress_tells_how_long_it_will_take() -> None:
    """Half done in two seconds: two seconds are left; nothing is said before there is a speed."""
    assert Progress(done_bytes=5, total_bytes=10, seconds=2.0).seconds_left == 2.0
    assert Progress(done_bytes=0, total_bytes=10, seconds=2.0).seconds_left is None


def test_what_a_hubs_client_left_is_compared_with(folder: Path) -> None:
    """The blob's name in a cache, and the note beside a download, are digests."""
    digests = {file.path: file.sha256 for file in listed(folder)}
    notes = folder / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / f"{FIRST}.metadata").write_text(f"commit\n{digests[FIRST]}\n1700000000.0\n")
    (notes / f"{SECOND}.metadata").write_text("commit\nno-digest\n")
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    (folder / SECOND).rename(blobs / str(digests[SECOND]))
    (folder / SECOND).symlink_to(blobs / str(digests[SECOND]))
    found = checked(folder)
    assert states(found) == {
        FIRST: FileState.OK,
        SECOND: FileState.OK,
        "README.md": FileState.RECORDED,
    }
    assert found.compared_with == ("hub_cache", "hub_download")
    flip(folder)
    assert states(checked(folder))[FIRST] is FileState.DIFFERS


# --- lists ---------------------------------------------------------------------------------------

A, B = "a" * 64, "b" * 64

LISTS: dict[str, bytes] = {
    "sha256sum": f"{A}  x.bin\n{B} *./d/y.bin\n".encode(),
    "sha256sum --tag": f"SHA256 (x.bin) = {A}\nSHA256 (d/y.bin) = {B}\n".encode(),
    "with a mark and remarks": b"\xef\xbb\xbf# of today\n"
    + f"{A.upper()}  x.bin\r\n\r\n{B}  d/y.bin\n".encode(),
    "a hub's tree": json.dumps(
        [
            {"type": "directory", "path": "d"},
            {"type": "file", "path": "x.bin", "size": 130, "lfs": {"oid": A, "size": 7}},
            {"type": "file", "path": "d/y.bin", "lfs": {"oid": f"sha256:{B}", "size": 7}},
        ]
    ).encode(),
    "a hub's description": json.dumps(
        {
            "siblings": [
                {"rfilename": "x.bin", "size": 7, "lfs": {"sha256": A, "size": 7}},
                {"rfilename": "d/y.bin", "size": 7, "lfs": {"sha256": B}},
            ]
        }
    ).encode(),
    "modelscope": json.dumps(
        {
            "Data": {
                "Files": [
                    {"Path": "d", "Type": "tree"},
                    {"Path": "x.bin", "Size": 7, "Sha256": A, "Type": "blob"},
                    {"Path": "d/y.bin", "Size": 7, "Sha256": B, "Type": "blob"},
                ]
            }
        }
    ).encode(),
}


@pytest.mark.parametrize("form", LISTS)
def test_a_list_is_read_in_every_form(form: str) -> None:
    """Names and digests; sizes where the form has them."""
    found = parse_list(LISTS[form], "list")
    assert [(file.path, file.sha256) for file in found] == [("x.bin", A), ("d/y.bin", B)]
    sized = form in ("a hub's tree", "a hub's description", "modelscope")
    assert {file.size for file in found} == ({7} if sized else {None})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"words\n",
        f"{A}  x\nwords\n".encode(),
        b"{}",
        b"[]",
        b"[1, null]",
        b'[{"path": 3}]',
        b"{" * 100_000,
        b"\xff\xfe\x00",
        b'{"siblings": {"a": 1}}',
    ],
)
def test_what_is_no_list_is_refused(raw: bytes) -> None:
    """A list that is half understood would pass files unchecked."""
    with pytest.raises(HeavyliftError) as caught:
        parse_list(raw, "list")
    assert caught.value.code == "CKPT030"


def test_a_line_of_odd_names_reads_as_sha256sum_wrote_it() -> None:
    """A backslash and a line break are escaped there."""
    raw = f"\\{A}  a\\\\b\\nc\n".encode()
    assert parse_list(raw, "list") == (ListedFile(path="a\\b\nc", sha256=A),)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", ".git/config"])
def test_names_out_of_the_folder_are_not_opened(folder: Path, path: str) -> None:
    """A list is a stranger's."""
    (folder.parent / "secret").write_text("x")
    found = checked(folder, (ListedFile(path=path, sha256=A),))
    assert path not in states(found)


def test_a_list_made_elsewhere_counts_by_the_names(folder: Path) -> None:
    """Paths of the machine it was made on lead to the files of the same names here."""
    against = tuple(
        ListedFile(path=f"/data/k3/{file.path}", sha256=file.sha256) for file in listed(folder)
    )
    assert set(states(checked(folder, against)).values()) == {FileState.OK}


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """No folder, no check."""
    with pytest.raises(HeavyliftError) as caught:
        checked(tmp_path / "nowhere")
    assert caught.value.code == "CKPT021"
