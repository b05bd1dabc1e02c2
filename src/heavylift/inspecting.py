"""Inspecting a checkpoint wherever it is: the facts, a folder, a file, or a hub.

Nothing is asked of the network when the facts suffice, and nothing a checkpoint brings is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from heavylift.checkpoint import gguf_parts
from heavylift.checkpoint.census import (
    Census,
    Stated,
    census,
    groups_of_inventory,
    stated_in_config,
    stated_in_gguf,
)
from heavylift.checkpoint.config_text import (
    CONFIG,
    CONFIG_LIMIT_BYTES,
    QUANTISATION,
    ConfigTextError,
    decoded,
    with_quantisation,
)
from heavylift.checkpoint.defects import Defect, shown
from heavylift.checkpoint.files import Files, LocalFiles
from heavylift.checkpoint.hub_settings import HubId
from heavylift.checkpoint.inventory import from_facts
from heavylift.checkpoint.listing import ListedFile
from heavylift.checkpoint.read import SHARD_SUFFIX, Checkpoint, read_checkpoint, read_files
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.facts.checkpoint_schema import TensorBook
from heavylift.facts.schema import ModelFacts
from heavylift.records.inspection import (
    FoundDefect,
    InspectedFile,
    Inspection,
    Origin,
)
from heavylift.units import format_gb


class HubReader(Files, Protocol):
    """A hub's files as they are asked for here."""

    asked: list[str]
    listed: tuple[ListedFile, ...]

    def enter_folder(self, folder: str) -> None:
        """Take the files of a folder of the model."""

    def prefetch(self, names: list[str]) -> None:
        """Fetch the first bytes of several files at once."""


Reach = Callable[[HubId], AbstractContextManager[HubReader]]
"""How a model on a hub is reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """A config.json that could be read, or what was wrong with it; neither when there is none."""

    document: Mapping[str, Any] | None = None
    defect: Defect | None = None


def is_path(text: str) -> bool:
    """True for what can only be a path, and for one with folders in it that leads somewhere.

    A name without folders is a name first, even where a folder happens to be called so.
    """
    says_so = text.startswith((os.sep, os.curdir + os.sep, os.pardir + os.sep, "~"))
    return says_so or text in (os.curdir, os.pardir) or (os.sep in text and Path(text).exists())


def inspect(
    target: str, catalog: Catalog, reach: Reach | None, *, fresh: bool = False
) -> Inspection:
    """The figures of a path, a known model or a hub's id.

    `fresh`: the hub is asked also where the facts would do. Raises CKPT021 to CKPT060 for files
    that are no checkpoint, FACT010 for a name that is nothing, and for a hub HUB001 to HUB014.
    """
    if is_path(target):
        return _of_path(Path(target).expanduser(), catalog.tensor_names())
    try:
        model = catalog.model(target)
    except HeavyliftError:
        if target.strip() and Path(target).exists():
            return _of_path(Path(target), catalog.tensor_names())
        hub_id = HubId.parse(target)
        if hub_id is None or reach is None:
            raise
        return _of_hub(hub_id, reach, catalog.tensor_names())
    hub_id = HubId.parse(target)
    if fresh and hub_id is not None and reach is not None:
        return _of_hub(hub_id, reach, catalog.tensor_names())
    return _of_facts(model, catalog)


def _of_path(path: Path, book: TensorBook) -> Inspection:
    checkpoint = read_checkpoint(path)
    config = read_config_file(LocalFiles(path if path.is_dir() else path.parent))
    return inspect_files(checkpoint, config, book, Origin.FILES)


def _of_hub(hub_id: HubId, reach: Reach, book: TensorBook) -> Inspection:
    with reach(hub_id) as files:
        checkpoint = read_hub(files, hub_id)
        config = read_config_file(files)
        asked = tuple(files.asked)
    counted = inspect_files(checkpoint, config, book, Origin.HUB, asked)
    return replace(counted, where=hub_id.id)


def read_hub(files: HubReader, hub_id: HubId) -> Checkpoint:
    """The headers of a model on a hub, those of all shards asked for at once.

    Raises CKPT029 when it holds several models and no part says which, CKPT031 when the part names
    none of them, and what `read_files` raises.
    """
    paths = [file.path for file in files.listed]
    start = "" if hub_id.part is None else _part(hub_id, paths)
    at_root = any(path.endswith((SHARD_SUFFIX, gguf_parts.SUFFIX)) for path in files.names())
    if not start and not at_root:
        # Everything lies in folders: one model is meant, several are named.
        found = gguf_parts.find(paths, "")
        if len(found) > 1:
            raise HeavyliftError(
                "CKPT029",
                {"path": hub_id.id, "count": len(found), "names": ", ".join(found[:20])},
            )
        start = found[0] if found else ""
    place = PurePosixPath(start)
    if start:
        files.enter_folder("" if str(place.parent) == "." else str(place.parent))
    names = files.names()
    shards = [name for name in names if name.endswith(SHARD_SUFFIX)]
    if place.name.endswith(gguf_parts.SUFFIX) or not shards:
        model = gguf_parts.choose(names, place.name, hub_id.id)
        shards = [] if model is None else list(model.names)
    files.prefetch([CONFIG, QUANTISATION, *shards])
    return read_files(files, place.name)


def _part(hub_id: HubId, paths: list[str]) -> str:
    part = hub_id.part or ""
    if part in paths:
        return part
    found = gguf_parts.find(paths, part)
    if len(found) == 1:
        return found[0]
    held = found or gguf_parts.find(paths, "")
    code = "CKPT029" if found else "CKPT031"
    raise HeavyliftError(
        code,
        {
            "path": hub_id.id,
            "part": part,
            "count": len(found),
            "names": ", ".join(held[:20]),
        },
    )


def _of_facts(model: ModelFacts, catalog: Catalog) -> Inspection:
    variant = next((each for each in model.variants if each.bytes_total is None), None)
    if variant is None:
        sizes = ", ".join(
            f"{each.id} {format_gb(each.bytes_total or 0)} GB" for each in model.variants
        )
        raise HeavyliftError("CKPT032", {"model": model.title, "sizes": sizes})
    inventory = from_facts(model, catalog.family(model.family), variant)
    stated = Stated(
        experts_per_token=_dim(model, "experts_per_token"),
        experts=_dim(model, "experts"),
        # None of a family whose config nobody has seen.
        model_type=next(iter(catalog.family(model.family).hf_model_types), None),
    )
    groups = groups_of_inventory(inventory)
    weights = {group.name: group.params_each for group in inventory.groups}
    counted = census(groups, stated, catalog.tensor_names(), weights)
    return replace(
        _counted(counted),
        where=variant.repo or model.id,
        title=f"{model.title}, {variant.title}",
        source=variant.source,
        file_format=variant.format,
    )


def inspect_files(
    checkpoint: Checkpoint,
    config: Config,
    book: TensorBook,
    origin: Origin,
    asked: tuple[str, ...] = (),
) -> Inspection:
    """The figures of headers that were read, with what the config beside them says."""
    if checkpoint.file_format == "gguf":
        stated = stated_in_gguf(checkpoint.metadata)
    else:
        stated = stated_in_config(config.document or {}, book)
    defects = checkpoint.defects + (() if config.defect is None else (config.defect,))
    return replace(
        _counted(census(checkpoint.groups, stated, book)),
        where=checkpoint.where,
        origin=origin,
        title=_title(checkpoint),
        file_format=checkpoint.file_format,
        file_bytes=checkpoint.file_bytes,
        files=tuple(
            InspectedFile(
                name=shown(file.name),
                tensors=file.tensors,
                tensor_bytes=file.tensor_bytes,
                file_bytes=file.file_bytes,
            )
            for file in checkpoint.files
        ),
        ignored=tuple(map(shown, checkpoint.ignored)),
        index_total_bytes=checkpoint.index_total_bytes,
        defects=tuple(
            FoundDefect(
                path=defect.path,
                problem=defect.problem,
                detail=defect.detail,
                remark=defect.is_remark,
            )
            for defect in defects
        ),
        sound=all(defect.is_remark for defect in defects),
        asked=asked,
    )


def _counted(counted: Census) -> Inspection:
    """The figures of a census; what is not in it as for facts."""
    layers, other_bytes = counted.layers()
    return Inspection(
        where="",
        origin=Origin.FACTS,
        file_format="",
        tensors=sum(each.group.count for each in counted.counted),
        tensor_bytes=sum(each.group.bytes for each in counted.counted),
        file_bytes=None,
        total_params=counted.total_params,
        active_params=counted.active_params,
        uncounted_tensors=counted.uncounted_tensors,
        experts=counted.experts,
        experts_per_token=counted.stated.experts_per_token,
        dtypes=counted.dtypes(),
        roles=counted.roles(),
        stored=counted.stored(),
        layers=layers,
        other_bytes=other_bytes,
        files=(),
        ignored=(),
        index_total_bytes=None,
        defects=(),
        sound=True,
        model_type=counted.stated.model_type,
    )


def _title(checkpoint: Checkpoint) -> str | None:
    """The name that a GGUF header gives the model."""
    name = checkpoint.metadata.get("general.name")
    return shown(name) if isinstance(name, str) and name else None


def _dim(model: ModelFacts, name: str) -> int | None:
    return model.dims[name].value if name in model.dims else None


def read_config_file(files: Files) -> Config:
    """The config.json beside a checkpoint, with what its quantiser wrote beside it. One that cannot
    be understood is a defect, no error: the tensors are what they are.
    """
    opened = files.open(CONFIG)
    if isinstance(opened, Defect):
        missing = opened.problem == "file_missing"
        return Config(defect=None if missing else opened)
    try:
        if opened.size > CONFIG_LIMIT_BYTES:
            return Config(defect=_no_config(f"> {CONFIG_LIMIT_BYTES} B"))
        document = decoded(opened.read(opened.size, 0))
    except ConfigTextError as error:
        return Config(defect=_no_config(str(error)))
    finally:
        opened.close()
    return Config(document=with_quantisation(document, read_quantisation(files)))


def read_quantisation(files: Files) -> Mapping[str, Any]:
    """What a quantiser wrote beside a config.json; nothing where it wrote none, or none that can be
    read: the config is then all there is.
    """
    if QUANTISATION not in files.names():
        return {}
    opened = files.open(QUANTISATION)
    if isinstance(opened, Defect):
        return {}
    try:
        return {} if opened.size > CONFIG_LIMIT_BYTES else decoded(opened.read(opened.size, 0))
    except ConfigTextError:
        return {}
    finally:
        opened.close()


def _no_config(reason: str) -> Defect:
    return Defect(file=CONFIG, problem="config_unreadable", observed=reason[:120])
