"""From jobs to a LaunchSpec: one pool, replicas behind a router, or prefill apart from decode."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from heavylift.errors import HeavyliftError
from heavylift.recipe.deadline import Deadline
from heavylift.recipe.engines import (
    atom,
    llamacpp,
    ollama,
    sglang,
    tokenspeed,
    trtllm,
    vllm,
    vllm_transfer,
)
from heavylift.recipe.engines.common import Built
from heavylift.recipe.flags import FlagTable
from heavylift.recipe.job import Job
from heavylift.recipe.published import Followed, followed
from heavylift.recipe.routers import router
from heavylift.recipe.sheet import Sheet
from heavylift.records.launch import Health, LaunchSpec, Mount, RankSpec, Setting, host_token
from heavylift.records.plan import Note, Plan, Status, Support

PHASES: Final = ("start", "weights", "memory", "warm_up", "api")
CACHE_ROOT: Final = "/srv/heavylift/cache"
MODEL_FOLDER: Final = "/models"
_VERSION_UNREAD: Final = "version_unread"

SINGLE_NODE: Final = "single_node"
MULTI_NODE: Final = "multi_node"
SPLIT: Final = "prefill_decode"
REPLICAS: Final = "replicas"

_BUILDERS: Final[Mapping[str, Callable[[Sheet], Built]]] = {
    "vllm": vllm.build,
    "sglang": sglang.build,
    "atom": atom.build,
    "tokenspeed": tokenspeed.build,
    "tensorrt-llm": trtllm.build,
    "llamacpp": llamacpp.build,
    "ollama": ollama.build,
}
"""By the engine as its commands look."""


_SPREADS: Final[Mapping[str, Callable[[Plan], bool]]] = {"vllm": vllm.spreads}


def can_spread(command: str, plan: Plan) -> bool:
    """Whether an engine, by its command, has a rendezvous for the layout of a plan."""
    rule = _SPREADS.get(command)
    return rule is None or rule(plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """The processes of one job with everything said about them."""

    built: Built
    settings: tuple[Setting, ...]
    notes: tuple[Note, ...]
    follows: Followed | None


def plan_digest(plan: Plan) -> str:
    """`sha256:` of a plan as JSON."""
    raw = msgspec.json.encode(plan, order="deterministic")
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def launch(job: Job, table: FlagTable | None = None) -> LaunchSpec:
    """The launch of one pool, as many times as there are replicas, a router in front of several.

    `table` is the router's flag table. Raises REC010 to REC015 for what cannot be emitted, REC017
    when the engine names no router.
    """
    replicas = job.replicas
    pool = _pool(job)
    ranks = tuple(
        rank for number in range(replicas) for rank in _replica(pool.built.ranks, number, job.nodes)
    )
    settings = pool.settings
    topology = MULTI_NODE if job.nodes > 1 else SINGLE_NODE
    if replicas > 1:
        topology = REPLICAS
        head, more = router(job, _needed(table, job), ranks, Deadline.of(job).seconds)
        ranks, settings = (*ranks, head), (*settings, *more)
    notes = [*pool.notes]
    if replicas > 1:
        notes.append(Note(code="pool_ports_open"))
    if job.start.store is not None:
        notes.append(Note(code="store_unverified", params={"store": job.start.store}))
        if job.start.store == "centralised":
            ranks = (*ranks, _store(len(ranks)))
    files = dict(pool.built.files)
    if job.start.store is not None:
        files[vllm_transfer.STORE_FILE] = vllm_transfer.store_file(job) + "\n"
    return _spec(
        job,
        ranks=_hosted(ranks, job.start.hosts),
        settings=settings,
        notes=tuple(notes),
        topology=topology,
        rendezvous=tuple(
            replace(pool.built.rendezvous, head=_renamed_rank(pool.built.rendezvous.head, n, job))
            for n in range(replicas)
            if pool.built.rendezvous is not None
        ),
        files=files,
        prepare=pool.built.prepare,
        support=_support(job, pool),
        nodes=job.nodes * replicas,
    )


def split_launch(prefill: Job, decode: Job, table: FlagTable | None) -> LaunchSpec:
    """Prefill and decode as two pools, each as planned for itself, and a router in front."""
    pools = [_pool(prefill), _pool(decode)]
    ranks: tuple[RankSpec, ...] = ()
    for pool in pools:
        ranks += tuple(replace(rank, rank=len(ranks) + rank.rank) for rank in pool.built.ranks)
    seconds = max(Deadline.of(prefill).seconds, Deadline.of(decode).seconds)
    head, more = router(decode, _needed(table, decode), ranks, seconds)
    notes = dict.fromkeys(note for pool in pools for note in _hashable(pool.notes))
    return _spec(
        decode,
        ranks=_hosted((*ranks, head), decode.start.hosts),
        settings=(*pools[0].settings, *pools[1].settings, *more),
        notes=(
            *(_note(note) for note in notes),
            Note(code="split_must_be_checked"),
            Note(code="pool_ports_open"),
        ),
        topology=SPLIT,
        rendezvous=tuple(p.built.rendezvous for p in pools if p.built.rendezvous is not None),
        files={},
        prepare=(),
        support=_split_support(pools, decode.plan.support),
        nodes=prefill.nodes + decode.nodes,
    )


def _pool(job: Job) -> _Pool:
    build = _BUILDERS.get(job.command.id)
    if build is None:
        raise HeavyliftError("REC018", {"engine": job.serving.title})
    sheet = Sheet(job)
    _remarks(sheet)
    built = build(sheet)
    return _Pool(
        built=built,
        settings=sheet.settings(),
        notes=tuple(sheet.notes),
        follows=followed(job),
    )


def _remarks(sheet: Sheet) -> None:
    """What must be read before a start, beside what the words themselves bring up."""
    job, plan = sheet.job, sheet.job.plan
    named = job.serving.table_versions.get(plan.engine_version)
    if named is not None and job.serving.other_build:
        sheet.note("flags_of", version=plan.engine_version, read=named, table=job.serving.table)
    if job.serving.plans_as is not None:
        sheet.note("planned_as", engine=plan.engine_title)
    if job.nodes > 1:
        sheet.note("name_the_interface")
    if not job.is_split and job.nodes * job.replicas > 1 and job.serving.router is not None:
        sheet.note("kept_together")
    if job.start.is_open and not job.start.key:
        sheet.note("open_without_key", host=job.start.bind_host)
    if plan.per_gpu.headroom_bytes < 0:
        sheet.note(
            "plan_disagrees",
            recipe=plan.support.recipe,
            short_gib=round(-plan.per_gpu.headroom_bytes / 2**30, 2),
        )
    if job.draft is not None:
        gib = None if job.draft.bytes is None else round(job.draft.bytes / 2**30, 2)
        sheet.note(
            "draft_not_planned",
            draft=job.draft.repo,
            gib=gib,
            left_gib=round(plan.per_gpu.headroom_bytes / 2**30, 2),
        )
    _image_remarks(sheet)


def _image_remarks(sheet: Sheet) -> None:
    job = sheet.job
    image = job.image()
    if image is None:
        if not job.on_host:
            sheet.note("no_image", engine=job.serving.title, version=job.plan.engine_version)
    elif image.digest is None:
        sheet.note("image_by_tag", image=_reference(job, image.reference))


def _replica(ranks: Sequence[RankSpec], number: int, nodes: int) -> tuple[RankSpec, ...]:
    """The ranks of one replica under names of its own."""
    if number == 0:
        return tuple(ranks)
    renamed = []
    for rank in ranks:
        names = {r.name: f"{r.role}-{number * nodes + (r.node or 0)}" for r in ranks}

        def moved(text: str, names: Mapping[str, str] = names) -> str:
            # Highest numbers first, so that no new name is renamed again.
            for old in reversed(list(names)):
                text = text.replace(host_token(old), host_token(names[old]))
            return text

        renamed.append(
            replace(
                rank,
                rank=number * nodes + rank.rank,
                name=names[rank.name],
                host=names[rank.name],
                argv=tuple(map(moved, rank.argv)),
                env={name: moved(value) for name, value in rank.env.items()},
            )
        )
    return tuple(renamed)


def _renamed_rank(name: str, number: int, job: Job) -> str:
    return f"{job.role}-{number * job.nodes}" if name == f"{job.role}-0" else name


def _hosted(ranks: Sequence[RankSpec], hosts: tuple[str, ...]) -> tuple[RankSpec, ...]:
    """Ranks with the hosts stated, in order; a router without one goes to the first.

    Raises REC019 when there are fewer hosts than machines.
    """
    if not hosts:
        return tuple(ranks)
    placed = [rank for rank in ranks if rank.gpus != 0]
    if len(hosts) < len(placed):
        raise HeavyliftError("REC019", {"hosts": len(hosts), "nodes": len(placed)})
    taken = {rank.name: host for rank, host in zip(placed, hosts, strict=False)}
    for rank in ranks:
        taken.setdefault(rank.name, hosts[len(placed)] if len(hosts) > len(placed) else hosts[0])
    return tuple(
        replace(
            rank,
            host=taken[rank.name],
            argv=tuple(_filled(word, taken, rank.name) for word in rank.argv),
            env={name: _filled(value, taken, rank.name) for name, value in rank.env.items()},
        )
        for rank in ranks
    )


def _filled(text: str, hosts: Mapping[str, str], own: str) -> str:
    for name, host in {**hosts, "self": hosts[own]}.items():
        text = text.replace(host_token(name), host)
    return text


def _needed(table: FlagTable | None, job: Job) -> FlagTable:
    if table is None:
        raise HeavyliftError("REC017", {"engine": job.serving.title})
    return table


def _store(rank: int) -> RankSpec:
    port = vllm_transfer.STORE_PORT
    return RankSpec(
        rank=rank,
        name=vllm_transfer.STORE_NAME,
        role="store",
        node=0,
        host=vllm_transfer.STORE_NAME,
        gpus=0,
        serves=False,
        argv=("mooncake_master", "--port", str(port)),
        ports={"rpc": port},
    )


def _support(job: Job, pool: _Pool) -> Support:
    """The plan's word; where the plan can have none of its own, that of the recipe followed.

    An engine whose rules were not read, or that is planned by another's, is as its publisher says.
    """
    told = job.plan.support
    if job.serving.plans_as is None and told.note != _VERSION_UNREAD:
        return told
    found = pool.follows
    if found is None or not found.exact:
        status = Status.UNKNOWN if found is None else Status.UNVERIFIED
        return Support(status=status, source=told.source, as_of=told.as_of, note="other_layout")
    recipe = found.recipe
    return Support(
        status=Status(recipe.status),
        source=recipe.source,
        as_of=recipe.as_of.isoformat(),
        recipe=recipe.id,
        note="version_unstated",
    )


def _split_support(pools: Sequence[_Pool], whole: Support) -> Support:
    """What is known of the two halves together: the lesser of their own recipes' words."""
    found = [pool.follows for pool in pools]
    exact = [each.recipe for each in found if each is not None and each.exact]
    if len(exact) < len(pools):
        return Support(
            status=Status.UNVERIFIED if any(found) else Status.UNKNOWN,
            source=next((each.recipe.source for each in found if each is not None), whole.source),
            as_of=next((str(each.recipe.as_of) for each in found if each is not None), whole.as_of),
            note="other_layout",
        )
    order = list(Status)
    least = max(exact, key=lambda recipe: order.index(Status(recipe.status)))
    return Support(
        status=Status(least.status),
        source=least.source,
        as_of=least.as_of.isoformat(),
        recipe=least.id,
        note=least.note,
    )


def _hashable(notes: Sequence[Note]) -> list[tuple[str, tuple[tuple[str, object], ...]]]:
    return [(note.code, tuple(sorted(note.params.items()))) for note in notes]


def _note(parts: tuple[str, tuple[tuple[str, object], ...]]) -> Note:
    code, params = parts
    return Note(code=code, params=dict(params))  # type: ignore[arg-type]


def _reference(job: Job, reference: str) -> str:
    return reference.replace("{version}", job.table_version).replace("{build}", job.table_version)


def _spec(
    job: Job,
    *,
    ranks: tuple[RankSpec, ...],
    settings: tuple[Setting, ...],
    notes: tuple[Note, ...],
    topology: str,
    rendezvous: tuple[object, ...],
    files: dict[str, str],
    prepare: tuple[tuple[str, ...], ...],
    support: Support,
    nodes: int,
) -> LaunchSpec:
    plan, common = job.plan, job.common
    seconds = Deadline.of(job).seconds
    image = job.image()
    on_host = job.on_host
    path = job.model_path
    several = job.gpus_per_node > 1
    return LaunchSpec(
        engine=job.engine,
        engine_version=plan.engine_version,
        image=None if image is None else _reference(job, image.reference),
        image_digest=None if image is None else image.digest,
        model=plan.model,
        model_revision=job.start.revision,
        model_path=path,
        model_mount=_model_mount(job),
        ranks=ranks,
        expected_phases=PHASES,
        deadline_s=seconds,
        plan_digest=plan_digest(plan),
        settings=settings,
        gpu_vendor=None if on_host else job.gpu.vendor,
        nodes=nodes,
        gpus_per_node=0 if on_host else job.gpus_per_node,
        topology=topology,
        served_name=job.served_name,
        bind_host=job.start.bind_host,
        served_port=job.start.port or job.serving.port,
        health=Health(path=job.serving.health_path, start_period_s=seconds),
        rendezvous=rendezvous,  # type: ignore[arg-type]
        cache_mounts=tuple(
            Mount(
                source=f"{CACHE_ROOT}/{folder.rsplit('/', 1)[-1].lstrip('.')}",
                target=folder,
                read_only=False,
            )
            for folder in job.serving.cache_folders
        ),
        shm_bytes=common.shared_memory.value if several and not on_host else None,
        host_network=nodes > 1 or topology in (SPLIT, REPLICAS),
        stop_grace_s=common.stop_grace.value,
        support=support,
        notes=notes,
        files=files,
        prepare=prepare,
    )


def _model_mount(job: Job) -> Mount | None:
    """The folder of the host that holds the model, seen at the same path inside."""
    if not job.is_local or job.start.model_path is None:
        return None
    folder = job.start.model_path
    if job.variant_format == "gguf" or folder.endswith(".gguf"):
        folder = folder.rsplit("/", 1)[0] or "/"
    return Mount(source=folder, target=folder)
