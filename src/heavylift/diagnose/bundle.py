"""A bundle to send to somebody: redacted logs, the diagnosis, a manifest."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import tarfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import msgspec

from heavylift import __version__
from heavylift.diagnose.evidence import STDIN, blocks, open_log
from heavylift.errors import HeavyliftError, reason
from heavylift.records.diagnosis import Diagnosis
from heavylift.redact import Redactor

SCHEMA: Final = 1

# Of a longer log the beginning and the end are kept: the start settings and the failure.
_KEPT_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BundledFile:
    """A file of the bundle: its size and hash as bundled, bytes left out of the middle, and how
    often what was taken out.
    """

    name: str
    bytes: int
    sha256: str
    left_out_bytes: int = 0
    redacted: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """What was written where."""

    path: str
    hosts_redacted: bool
    files: tuple[BundledFile, ...]
    tool_version: str
    system: str
    schema: int = SCHEMA


def write_bundle(
    logs: tuple[str, ...],
    diagnosis: Diagnosis,
    target: Path,
    *,
    hosts: bool,
    names: tuple[str, ...],
) -> Bundle:
    """Write the bundle. Raises DIA006 when `target` is there, DIA005 when it cannot be written."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise HeavyliftError("DIA006", {"path": str(target)}) from error
    except OSError as error:
        raise HeavyliftError("DIA005", {"path": str(target), "reason": reason(error)}) from error
    files: list[BundledFile] = []
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for number, log in enumerate(logs):
            redactor = Redactor(hosts=hosts, names=names)
            stem = "stdin" if log == STDIN else Path(log).name.replace(":", "_")
            name = f"logs/{number:02}-{redactor.line(stem)}"
            with TemporaryFile() as scratch:
                left_out = _redact(log, redactor, scratch)
                files.append(_add(archive, name, scratch, redactor.counts, left_out))
        redactor = Redactor(hosts=hosts, names=names)
        text = _redacted_json(diagnosis, redactor)
        files.append(_add(archive, "diagnosis.json", io.BytesIO(text), redactor.counts, 0))
        bundle = Bundle(
            path=str(target),
            hosts_redacted=hosts,
            files=tuple(files),
            tool_version=__version__,
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
        )
        # Whose home the bundle was written to is nobody's business who reads it.
        inside = msgspec.json.encode(replace(bundle, path=target.name))
        manifest = msgspec.json.format(inside, indent=2)
        _add(archive, "manifest.json", io.BytesIO(manifest), Counter(), 0)
    return bundle


def _redact(log: str, redactor: Redactor, scratch: IO[bytes]) -> int:
    """Write the redacted log; the bytes left out of its middle."""
    head = 0
    tail: list[bytes] = []
    tail_bytes = left_out = 0
    with open_log(log) as stream:
        for block in blocks(stream):
            text = block.decode("utf-8", "replace")
            lines = (redactor.line(line) for line in text.splitlines())
            redacted = ("\n".join(lines) + "\n").encode()
            if head < _KEPT_BYTES:
                scratch.write(redacted)
                head += len(redacted)
                continue
            tail.append(redacted)
            tail_bytes += len(redacted)
            while tail_bytes - len(tail[0]) > _KEPT_BYTES:
                tail_bytes -= len(tail[0])
                left_out += len(tail.pop(0))
    if left_out:
        scratch.write(f"[{left_out} bytes left out]\n".encode())
    for block in tail:
        scratch.write(block)
    return left_out


def _redacted_json(diagnosis: Diagnosis, redactor: Redactor) -> bytes:
    """The diagnosis with every text redacted; the numbers stay."""

    def cleaned(value: object) -> object:
        if isinstance(value, str):
            return "\n".join(map(redactor.line, value.split("\n")))
        if isinstance(value, dict):
            return {key: cleaned(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [cleaned(each) for each in value]
        return value

    plain = msgspec.to_builtins(diagnosis)
    return msgspec.json.format(msgspec.json.encode(cleaned(plain)), indent=2)


def _add(
    archive: tarfile.TarFile, name: str, content: IO[bytes], counts: Counter[str], left_out: int
) -> BundledFile:
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type] # IO[bytes] has what it needs
    content.seek(0)
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o600
    archive.addfile(entry, content)
    return BundledFile(
        name=name,
        bytes=size,
        sha256=digest,
        left_out_bytes=left_out,
        redacted={kind: times for kind, times in counts.items() if times},
    )
