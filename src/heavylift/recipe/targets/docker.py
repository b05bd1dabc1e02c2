"""Target `docker`: one script per rank, which becomes `docker run` in the foreground."""

from __future__ import annotations

from typing import Final

from heavylift.recipe.targets import common
from heavylift.recipe.targets.job import EVERYWHERE, LOOPBACK, Job, used_files
from heavylift.recipe.targets.records import Rendering, Stage, Step, TargetFile
from heavylift.recipe.targets.shell import prelude, script_path
from heavylift.recipe.targets.words import (
    HERE,
    HOSTS_FILE,
    IN_CONTAINER,
    SECRETS_FILE,
    command_lines,
    shell_word,
)
from heavylift.records.launch import Mount, RankSpec

TARGET: Final = "docker"

# NVIDIA's and AMD's own instructions for containers: pages pinned for transfers, threads' stacks.
ULIMITS: Final = (("memlock", "-1"), ("stack", "67108864"))
RDMA_DEVICES: Final = "/dev/infiniband"

_RDMA_LINES: Final = [
    "rdma=()",
    f"if [ -d {RDMA_DEVICES} ]; then",
    f"  rdma=(--device {RDMA_DEVICES} --cap-add IPC_LOCK)",
    "fi",
]


def render(job: Job) -> Rendering:
    """A script per rank, and the files of addresses and secrets that they read."""
    each_start = (
        Step(stage=Stage.START, what="script", argv=("bash", script_path(rank)), rank=rank.name)
        for rank in job.ranks
    )
    each_stop = (
        Step(
            stage=Stage.STOP,
            what="docker_stop",
            argv=("docker", "stop", job.full_name(rank)),
            rank=rank.name,
        )
        for rank in job.ranks
    )
    return Rendering(
        target=TARGET,
        files=(*(rank_script(job, rank) for rank in job.ranks), *common.host_files(job)),
        steps=(
            *common.prepare_steps(job),
            *pull_steps(job),
            *each_start,
            *common.watch_steps(job),
            *each_stop,
        ),
        findings=(*job.findings(), *job.image_findings()),
        deadline_at=common.deadline_places(job, script_path),
    )


def shares_network(job: Job) -> bool:
    """True when the containers share the host's network: asked for, or several must meet."""
    return job.host_network or len(job.ranks) > 1


def inside(job: Job) -> Job:
    """The launch as its containers run it.

    A container with a network of its own listens to all of it; the host publishes the port where
    asked.
    """
    return job if shares_network(job) or not job.serving else job.bound_to(EVERYWHERE)


def pull_steps(job: Job) -> tuple[Step, ...]:
    """Fetching every image before the start, so that the deadline counts the load alone."""
    images = dict.fromkeys(map(job.image, job.ranks))
    return tuple(
        Step(stage=Stage.PREPARE, what="pull", argv=("docker", "pull", image)) for image in images
    )


def rank_script(
    job: Job, rank: RankSpec, *, reads: tuple[str, ...] = (HOSTS_FILE, SECRETS_FILE)
) -> TargetFile:
    """The script of one rank in a container.

    `reads` are the files of variables it may read; what is not there its starter sets.
    """
    published = job.spec.bind_host or LOOPBACK[0]
    job = inside(job)
    rank = job.rank(rank.name)
    has_rdma = job.is_multi_node and job.takes_cards(rank)
    groups = job.access.groups if job.access is not None and job.takes_cards(rank) else ()
    lines = command_lines(_run_words(job, rank, published, rdma=has_rdma))
    text = common.script(
        job,
        prelude(job, rank, reads),
        [
            line
            for group in groups
            for line in (
                f"{group_variable(group)}=$(getent group {group} | cut -d: -f3)",
                f': "${{{group_variable(group)}:?}}"',
            )
        ],
        _RDMA_LINES if has_rdma else [],
        [f"exec {lines[0]}", *lines[1:]],
    )
    return TargetFile(path=script_path(rank), text=text, mode=common.SCRIPT_MODE)


def group_variable(group: str) -> str:
    """The variable that holds the number of a group of the host."""
    return f"{group.upper().replace('-', '_')}_GROUP"


def _run_words(job: Job, rank: RankSpec, published: str, *, rdma: bool) -> list[str]:
    """`docker run …` as words that bash reads."""
    options: list[str] = [f"--name={job.full_name(rank)}", "--rm", "--init"]
    if job.stop_grace_s is not None:
        options.append(f"--stop-timeout={job.stop_grace_s}")
    options += _network(job, rank, published)
    words = [shell_word(option, rank) for option in options]
    if job.access is not None and job.takes_cards(rank):
        access = job.access
        words += ["--gpus=all"] if access.docker_gpus else []
        words += [shell_word(f"--device={device}", rank) for device in access.devices]
        words += [f'--group-add="${{{group_variable(group)}}}"' for group in access.groups]
        words += [shell_word(f"--security-opt={each}", rank) for each in access.security_options]
        words += ["--ipc=host"]
        words += [f"--ulimit={name}={value}" for name, value in ULIMITS]
    if job.spec.shm_bytes is not None:
        words.append(f"--shm-size={job.spec.shm_bytes}")
    if rdma:
        words.append('"${rdma[@]}"')
    words += [shell_word(f"--mount={mount_words(each)}", rank) for each in mounts(job, rank)]
    words += [
        f"--mount=type=bind,source={HERE}/{name},target={IN_CONTAINER}/{name},readonly"
        for name in used_files(rank)
    ]
    words += [
        shell_word(f"--env={name}={value}", rank, IN_CONTAINER)
        for name, value in sorted(rank.env.items())
    ]
    words += [f"--env={name}" for name in rank.secrets]
    words += [shell_word(f"--entrypoint={rank.argv[0]}", rank), shell_word(job.image(rank), rank)]
    return ["docker run", *words, *(shell_word(word, rank, IN_CONTAINER) for word in rank.argv[1:])]


def _network(job: Job, rank: RankSpec, published: str) -> list[str]:
    if shares_network(job):
        return ["--network=host"]
    if rank not in job.serving:
        return []
    port = job.port(rank)
    return [f"--publish={common.bracketed(published)}:{port}:{port}"]


def mounts(job: Job, rank: RankSpec) -> tuple[Mount, ...]:
    """The folders of the host that a rank sees: the model, what survives a restart, its own."""
    if not job.loads_model(rank):
        return rank.mounts
    model = (job.spec.model_mount,) if job.spec.model_mount is not None else ()
    return tuple(dict.fromkeys((*model, *job.spec.cache_mounts, *rank.mounts)))


def mount_words(mount: Mount) -> str:
    """A mount as Docker reads it: comma-separated, quoted as CSV where a path needs it.

    Unlike `--volume` it refuses a folder that is not there, where the other would make an empty
    one that belongs to root.
    """
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return ",".join(map(_csv, fields))


def _csv(field: str) -> str:
    if "," not in field and '"' not in field:
        return field
    return '"' + field.replace('"', '""') + '"'
