"""What the targets promise: addresses, keys, images, deadlines, restarts."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from heavylift.cli.text import keys
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.recipe.targets import TARGETS, render, slurm
from heavylift.recipe.targets.records import Rendering, Runtime, Stage, TargetOptions
from heavylift.recipe.targets.view import LaunchView, with_images
from heavylift.records.finding import Severity
from heavylift.records.launch import Health, LaunchSpec, Mount, RankSpec, Rendezvous, host_token
from heavylift.records.plan import Note

Rendered = Callable[..., Rendering]
SpecOf = Callable[[str], LaunchSpec]
WITHOUT_RAY = [name for name in TARGETS if name != "ray"]


def file(rendering: Rendering, path: str) -> str:
    """The text of a file."""
    return next(each.text for each in rendering.files if each.path == path)


def service(rendering: Rendering, path: str, name: str) -> dict[str, Any]:
    """A service of a compose file."""
    found: dict[str, Any] = yaml.safe_load(file(rendering, path))["services"][name]
    return found


def kubernetes(rendering: Rendering, path: str) -> dict[str, dict[str, Any]]:
    """The objects of a manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(file(rendering, path))}


# --- all targets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", WITHOUT_RAY)
def test_the_same_launch_gives_the_same_bytes(
    target: str, spec: LaunchSpec, rendered: Rendered
) -> None:
    """A target is a function: nothing of the day, the machine or the order gets in."""
    assert rendered(target, spec) == rendered(target, spec)


@pytest.mark.parametrize("target", WITHOUT_RAY)
def test_every_file_has_the_head_and_every_rank_is_started_once(
    target: str, spec: LaunchSpec, rendered: Rendered
) -> None:
    """Our files say who made them; each rank's own words stand in one file."""
    rendering = rendered(target, spec)
    own = set(spec.files)
    for each in rendering.files:
        assert each.path in own or "# Kimi K3 for a test" in each.text
    assert len({each.path for each in rendering.files}) == len(rendering.files)


@pytest.mark.parametrize("target", WITHOUT_RAY)
def test_no_key_is_in_a_file_and_none_in_a_command(
    target: str, spec: LaunchSpec, rendered: Rendered
) -> None:
    """Keys go by name; the example of the file that holds them is private and empty."""
    rendering = rendered(target, spec)
    names = {name for rank in spec.ranks for name in rank.secrets}
    example = [each for each in rendering.files if each.path == "secrets.env.example"]
    assert bool(example) == bool(names)
    for each in example:
        assert each.mode == 0o600
        assert {f"{name}=" for name in names} <= set(each.text.splitlines())
    for each in rendering.files:
        assert not re.search(rf"({'|'.join(names) or 'none'})=[^\s\"']", each.text)
    for step in rendering.steps:
        assert not any("KEY=" in word for word in step.argv)


@pytest.mark.parametrize("target", WITHOUT_RAY)
def test_the_deadline_is_one_number_everywhere(
    target: str, spec_of: SpecOf, rendered: Rendered
) -> None:
    """Variable, probe, unit and health check hold the deadline of the launch, and are listed."""
    spec = spec_of("vllm-two-nodes")
    rendering = rendered(target, spec)
    assert any("VLLM_ENGINE_READY_TIMEOUT_S" in place for place in rendering.deadline_at)
    if target == "compose":
        check = service(rendering, "serve-0/compose.yaml", "serve-0")["healthcheck"]
        assert check["start_period"] == f"{spec.deadline_s}s"
        assert any(place.endswith("start_period") for place in rendering.deadline_at)
    if target == "systemd":
        unit = file(rendering, "kimi-k3-serve-0.service").splitlines()
        assert f"TimeoutStartSec={spec.deadline_s}" in unit
    if target == "kubernetes":
        group = kubernetes(rendering, "serve-0.yaml")["LeaderWorkerSet"]["spec"]
        head = group["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
        probe = head["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] == spec.deadline_s


@pytest.mark.parametrize("deadline_s", [1, 10, 11, 4831])
def test_a_startup_probe_never_ends_before_the_deadline(
    deadline_s: int, spec_of: SpecOf, rendered: Rendered
) -> None:
    """The tries are rounded up to whole periods."""
    spec = replace(spec_of("atom-amd"), deadline_s=deadline_s)
    probe = kubernetes(rendered("kubernetes", spec), "serve-0.yaml")["StatefulSet"]["spec"][
        "template"
    ]["spec"]["containers"][0]["startupProbe"]
    assert probe["failureThreshold"] == math.ceil(deadline_s / 10)


@pytest.mark.parametrize("target", WITHOUT_RAY)
@pytest.mark.parametrize("runtime", [None, Runtime.HOST])
def test_every_step_and_finding_has_words(
    target: str, runtime: Runtime | None, spec: LaunchSpec, rendered: Rendered
) -> None:
    """No code of a target reaches a reader as a code."""
    rendering = rendered(target, spec, runtime=runtime)
    asked = {f"recipe.step.{step.what}" for step in rendering.steps}
    asked |= {f"recipe.finding.{each.code}" for each in rendering.findings}
    assert asked
    assert asked <= keys()


# --- listening and keys --------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["docker", "compose"])
def test_a_published_port_is_the_machine_s_own_unless_asked(
    target: str, spec_of: SpecOf, rendered: Rendered
) -> None:
    """Inside its network the engine listens to all; outside only where the launch says."""
    spec = spec_of("llamacpp-one-card")
    assert "127.0.0.1:8080:8080" in "".join(each.text for each in rendered(target, spec).files)
    rank = replace(
        spec.ranks[0],
        argv=tuple(word.replace("127.0.0.1", "0.0.0.0") for word in spec.ranks[0].argv),  # noqa: S104
    )
    opened = replace(spec, bind_host="0.0.0.0", ranks=(rank,))  # noqa: S104
    assert "0.0.0.0:8080:8080" in "".join(each.text for each in rendered(target, opened).files)


@pytest.mark.parametrize("target", WITHOUT_RAY)
def test_open_to_others_without_a_key_is_a_finding(
    target: str, spec_of: SpecOf, rendered: Rendered
) -> None:
    """With a key, or on loopback, there is none; a cluster always opens the port."""
    closed = spec_of("atom-amd")
    rank = replace(
        closed.ranks[0],
        argv=tuple(word.replace("127.0.0.1", "0.0.0.0") for word in closed.ranks[0].argv),  # noqa: S104
    )
    opened = replace(closed, bind_host="0.0.0.0", ranks=(rank,))  # noqa: S104
    keyed = replace(opened, ranks=(replace(rank, secrets={"KEY": "api-key"}),))

    def exposed(spec: LaunchSpec) -> bool:
        return any(each.id == "exposed_without_key" for each in rendered(target, spec).findings)

    assert exposed(opened)
    assert not exposed(keyed)
    assert exposed(closed) == (target == "kubernetes")


def test_a_rank_that_another_machine_asks_must_not_listen_to_itself_alone(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """A router elsewhere cannot reach loopback: that fails before it is started."""
    spec = spec_of("prefill-decode")
    assert not rendered("shell", spec).findings

    def alone(rank: RankSpec) -> RankSpec:
        words = (word.replace(host_token("self"), "127.0.0.1") for word in rank.argv)
        return replace(rank, argv=tuple(words))

    deaf = replace(spec, ranks=tuple(map(alone, spec.ranks)))
    found = {(each.id, each.subject): each.severity for each in rendered("shell", deaf).findings}
    # The router stands on the machine of the first rank, and reaches that one.
    assert found == {("not_reachable", "decode-0"): Severity.FAIL}


def test_pods_listen_where_their_service_finds_them(spec: LaunchSpec, rendered: Rendered) -> None:
    """Whatever the launch says, a pod listens on its own address, and never on loopback alone."""
    rendering = rendered("kubernetes", spec)
    text = "".join(each.text for each in rendering.files if each.path.endswith(".yaml"))
    assert "127.0.0.1" not in text
    assert "{host:" not in text
    assert "{file:" not in text


def test_an_address_in_a_variable_is_the_engine_s_as_one_behind_a_flag(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """An engine told by its environment listens to all of its network, and outside where asked."""
    spec = _with(
        spec_of("atom-amd"), argv=("engine", "serve"), env={"ENGINE_HOST": "127.0.0.1:8000"}
    )
    inside = service(rendered("compose", spec), "compose.yaml", "serve-0")
    assert inside["environment"]["ENGINE_HOST"] == "0.0.0.0:8000"
    assert inside["ports"] == ["127.0.0.1:8000:8000"]
    assert "http://127.0.0.1:8000/health" in "".join(
        each.text for each in rendered("systemd", spec).files
    )


def test_only_the_address_it_listens_on_is_changed(spec_of: SpecOf, rendered: Rendered) -> None:
    """A flag for another host, with an address of another machine, stays as it is."""
    words = ("engine", "--rpc-host", "10.9.9.9", "--host=127.0.0.1", "--other-host")
    spec = _with(spec_of("atom-amd"), argv=words)
    inside = service(rendered("compose", spec), "compose.yaml", "serve-0")
    assert inside["command"] == ["--rpc-host", "10.9.9.9", "--host=0.0.0.0", "--other-host"]


# --- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["docker", "compose", "kubernetes"])
def test_images_go_by_digest_and_a_tag_is_told(
    target: str, spec: LaunchSpec, rendered: Rendered
) -> None:
    """The digest is written where it is known; where it is not, there is a warning."""
    rendering = rendered(target, spec)
    text = "".join(each.text for each in rendering.files)
    told = {each.subject for each in rendering.findings if each.id == "image_by_tag"}
    if spec.image_digest is not None:
        assert f"{spec.image}@{spec.image_digest}" in text
        assert spec.image not in told
    else:
        assert spec.image in told


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai:latest", "vllm/vllm-openai", "localhost:5000/vllm"]
)
def test_an_image_that_moves_is_refused(image: str, spec_of: SpecOf, rendered: Rendered) -> None:
    """`latest`, and no tag at all, are not written."""
    spec = replace(spec_of("atom-amd"), image=image)
    with pytest.raises(HeavyliftError) as caught:
        rendered("docker", spec)
    assert caught.value.code == "REC106"


def test_a_router_has_an_image_of_its_own_or_that_is_told(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """Whether an engine's image holds the router is not known; naming one settles it."""
    spec = spec_of("prefill-decode")
    bare = replace(spec, ranks=tuple(replace(rank, image=None) for rank in spec.ranks))
    found = [each for each in rendered("compose", bare).findings if each.subject == "router-0"]
    assert [each.id for each in found] == ["image_of_the_engine"]
    assert found[0].severity is Severity.UNKNOWN
    digest = "sha256:" + "0" * 64
    own = with_images(bare, {"router": f"own/router:v1@{digest}"})
    assert not rendered("compose", own).findings
    assert f"own/router:v1@{digest}" in "".join(each.text for each in rendered("docker", own).files)


@pytest.mark.parametrize("target", ["docker", "compose", "kubernetes"])
def test_a_router_without_an_image_is_its_pinned_package(
    target: str, spec_of: SpecOf, rendered: Rendered
) -> None:
    """What no image holds is installed in its version when the container starts, and that is told;
    an image of the user's own is taken as it is.
    """
    spec = spec_of("prefill-decode")
    router = replace(spec.ranks[-1], image=None, package="vllm-router==0.1.17")
    spec = replace(spec, ranks=(*spec.ranks[:-1], router))
    rendering = rendered(target, spec)
    text = "".join(each.text for each in rendering.files)
    assert "python:3.12-slim" in text
    assert "vllm-router==0.1.17" in text
    found = [each.id for each in rendering.findings if each.subject == router.name]
    assert found == ["installed_at_start"]
    own = rendered(target, with_images(spec, {"router": "own/router:v1"}))
    assert "vllm-router==0.1.17" not in "".join(each.text for each in own.files)


def test_without_a_container_the_package_is_a_step(spec_of: SpecOf, rendered: Rendered) -> None:
    """A script that runs on the machine itself needs the router's program there."""
    spec = spec_of("prefill-decode")
    router = replace(spec.ranks[-1], image=None, package="vllm-router==0.1.17")
    rendering = rendered("shell", replace(spec, ranks=(*spec.ranks[:-1], router)))
    steps = [each.argv for each in rendering.steps if each.what == "install_package"]
    assert steps == [("python3", "-m", "pip", "install", "vllm-router==0.1.17")]


@pytest.mark.parametrize("tag", ["vllm-latest", "nightly", "main", "v1-nightly"])
def test_a_tag_that_its_publisher_moves_is_refused(
    tag: str, spec_of: SpecOf, rendered: Rendered
) -> None:
    """It is not `latest` by name only; with a digest it stands still."""
    spec = replace(spec_of("atom-amd"), image=f"a/b:{tag}", image_digest=None)
    with pytest.raises(HeavyliftError) as caught:
        rendered("docker", spec)
    assert caught.value.code == "REC106"
    assert rendered("docker", replace(spec, image_digest="sha256:" + "1" * 64)).files


def test_an_image_of_the_user_s_takes_the_place_of_the_launch_s(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """For all that load the model, digest and all; what was said of the other image goes."""
    notes = (Note(code="image_by_tag"), Note(code="pin_revision"))
    spec = replace(spec_of("prefill-decode"), notes=notes)
    own = with_images(spec, {"engines": "own/engine:v2@sha256:" + "1" * 64})
    assert (own.image, own.image_digest) == ("own/engine:v2", "sha256:" + "1" * 64)
    assert [note.code for note in own.notes] == ["pin_revision"]
    assert own.ranks[-1].image == spec.ranks[-1].image
    assert "own/engine:v2@sha256:1" in file(rendered("docker", own), "decode-0.sh")


# --- each target's own ---------------------------------------------------------------------------


def test_a_script_hands_every_word_over_as_it_is(
    spec_of: SpecOf, rendered: Rendered, tmp_path: Path
) -> None:
    """Run by bash, the engine gets the words and variables of the launch, addresses filled in."""
    nasty = ("--x", "a b", "$HOME", "`id`", "\"'\\", "", "*", "{host:self}:1", "new\nline")
    spec = spec_of("atom-amd")
    rank = replace(
        spec.ranks[0], argv=("engine", *nasty), env={"V": "a'b\"$c", "W": "http://{host:self}"}
    )
    rendering = rendered("shell", replace(spec, ranks=(rank,), model_mount=None, cache_mounts=()))
    for each in rendering.files:
        (tmp_path / each.path).write_text(each.text, "utf-8")
    (tmp_path / "hosts.env").write_text("HOST_SERVE_0=10.0.0.7\n", "utf-8")
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\nprintf "%s\\0" "$V" "$W" "$@"\n', "utf-8")
    engine.chmod(0o755)
    done = subprocess.run(
        ["bash", str(tmp_path / "serve-0.sh")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = tuple(word.replace("{host:self}", "10.0.0.7") for word in nasty)
    assert done.stdout.split("\0")[:-1] == ["a'b\"$c", "http://10.0.0.7", *words]


def test_a_script_stops_when_an_address_or_a_key_is_missing(
    spec_of: SpecOf, rendered: Rendered, tmp_path: Path
) -> None:
    """An empty variable ends the script before the engine starts, and is named."""
    for each in rendered("shell", spec_of("vllm-two-nodes")).files:
        (tmp_path / each.path).write_text(each.text, "utf-8")
    (tmp_path / "secrets.env").write_text("ENGINE_API_KEY=k\n", "utf-8")
    done = subprocess.run(
        ["bash", str(tmp_path / "serve-0.sh")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "HOST_SERVE_0" in done.stderr


def test_without_a_container_folders_go_by_the_paths_of_the_host(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """What a container sees under one path the engine on the host is given under the other."""
    spec = spec_of("vllm-two-nodes")
    assert "/srv/models/Kimi-K3" in file(rendered("shell", spec), "serve-0.sh")
    inside = file(rendered("docker", spec), "serve-0.sh")
    assert "  serve /models/Kimi-K3 \\" in inside.splitlines()


def docker_words(script: str) -> list[str]:
    """The words of a script's `docker run`, variables unfilled."""
    _, _, command = script.partition("exec ")
    return shlex.split(command.replace("\\\n", " "))


def test_cards_of_either_maker_reach_the_container(spec_of: SpecOf, rendered: Rendered) -> None:
    """Docker's own flag for the one; devices, groups by number and seccomp for the other."""
    nvidia = docker_words(file(rendered("docker", spec_of("vllm-two-nodes")), "serve-0.sh"))
    assert {"--gpus=all", "--ipc=host", "--network=host", "--ulimit=memlock=-1"} <= set(nvidia)
    script = file(rendered("docker", spec_of("atom-amd")), "serve-0.sh")
    amd = docker_words(script)
    devices = {"--device=/dev/kfd", "--device=/dev/dri", "--security-opt=seccomp=unconfined"}
    assert devices <= set(amd)
    assert "--group-add=${RENDER_GROUP}" in amd
    assert "RENDER_GROUP=$(getent group render | cut -d: -f3)" in script.splitlines()
    assert "--gpus=all" not in amd
    assert "--shm-size" not in script  # the host's shared memory is shared, size and all


def test_compose_reserves_cards_and_waits_for_the_load(spec_of: SpecOf, rendered: Rendered) -> None:
    """A reservation for one maker, devices and groups for the other; alone, a service restarts."""
    group = rendered("compose", spec_of("vllm-two-nodes"))
    head = service(group, "serve-0/compose.yaml", "serve-0")
    device = head["deploy"]["resources"]["reservations"]["devices"][0]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert (head["restart"], head["stop_grace_period"]) == ("no", "120s")
    assert "healthcheck" not in service(group, "serve-1/compose.yaml", "serve-1")
    alone = service(rendered("compose", spec_of("atom-amd")), "compose.yaml", "serve-0")
    assert alone["devices"] == ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
    assert alone["group_add"] == ["${VIDEO_GROUP:?}", "${RENDER_GROUP:?}"]
    assert alone["restart"] == "unless-stopped"
    assert alone["environment"]["ODD"] == "a 'quoted' $$value \"here\""


def test_a_unit_restarts_only_what_can_come_back_alone(spec_of: SpecOf, rendered: Rendered) -> None:
    """A rank of a pool comes back too late for the others; a usage error is never mended so."""
    alone = file(rendered("systemd", spec_of("atom-amd")), "kimi-k3-serve-0.service").splitlines()
    assert {"Restart=on-failure", "RestartPreventExitStatus=2", "KillMode=mixed"} <= set(alone)
    pool = file(rendered("systemd", spec_of("vllm-two-nodes")), "kimi-k3-serve-1.service")
    assert "Restart=no" in pool.splitlines()
    assert "curl" not in pool


def test_keys_are_put_in_place_readable_by_their_owner_alone(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """The step that copies them for a unit gives them their mode."""
    steps = rendered("systemd", spec_of("vllm-two-nodes")).steps
    copies = [step.argv for step in steps if "secrets.env" in step.argv and "-D" in step.argv]
    assert copies
    assert all("--mode=600" in argv for argv in copies)


def test_workers_of_a_group_take_their_number_and_head_from_it(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """Native rendezvous: leader's address, index and a restart of the whole group."""
    for name in ("vllm-two-nodes", "sglang-two-nodes"):
        manifest = kubernetes(rendered("kubernetes", spec_of(name)), "serve-0.yaml")
        template = manifest["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        assert (template["size"], template["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")
        words = template["workerTemplate"]["spec"]["containers"][0]["args"]
        assert words[words.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
        assert any("$(LWS_LEADER_ADDRESS)" in word for word in words)
        selector = manifest["Service"]["spec"]["selector"]
        assert selector["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


def test_workers_that_differ_in_more_choose_their_command(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """Three ranks with starting numbers of their own: each gets its own words, quoted."""
    spec = spec_of("vllm-two-nodes")
    head, worker = spec.ranks
    others = tuple(
        replace(
            worker,
            rank=number,
            name=f"serve-{number}",
            argv=("vllm", "serve", "--start-rank", str(number * 8), "--x", "a b"),
            env={"SELF": host_token("self")},
        )
        for number in (1, 2)
    )
    rendering = rendered("kubernetes", replace(spec, ranks=(head, *others)))
    template = kubernetes(rendering, "serve-0.yaml")["LeaderWorkerSet"]["spec"]
    container = template["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    assert container["command"] == ["bash"]
    flag, script = container["args"]
    assert flag == "-c"
    ran = subprocess.run(
        [
            "bash",
            "-c",
            script.replace("exec vllm", "printf '%s|'").replace("$(POD_IP)", "10.0.0.2"),
        ],
        env={"LWS_WORKER_INDEX": "2", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "serve|--start-rank|16|--x|a b|"


def test_a_group_and_its_service_have_names_of_their_own(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """A group makes a headless service of its name; ours would take the pods' names away."""
    manifest = kubernetes(rendered("kubernetes", spec_of("vllm-two-nodes")), "serve-0.yaml")
    names = {kind: each["metadata"]["name"] for kind, each in manifest.items()}
    assert names == {"LeaderWorkerSet": "kimi-k3-serve-0", "Service": "kimi-k3-serve-0-api"}


def test_a_router_finds_every_server_of_a_group(spec_of: SpecOf, rendered: Rendered) -> None:
    """Where each node of a pool answers, the head is asked by service, the others as pods."""
    spec = spec_of("prefill-decode")
    head, other, decode, router = spec.ranks
    other = replace(other, argv=head.argv, ports={"api": 8001}, serves=True)
    asked = (*router.argv, "--prefill", f"http://{host_token('prefill-1')}:8001")
    ranks = (head, other, decode, replace(router, argv=asked))
    text = file(rendered("kubernetes", replace(spec, ranks=ranks)), "router-0.yaml")
    assert "http://kimi-k3-prefill-0-api:8001" in text
    assert "http://kimi-k3-prefill-0-0-1.kimi-k3-prefill-0:8001" in text


def test_a_split_deployment_is_pools_with_a_router_that_finds_them(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """Prefill as a group, decode alone, the router without cards; services by name."""
    rendering = rendered("kubernetes", spec_of("prefill-decode"))
    assert "LeaderWorkerSet" in kubernetes(rendering, "prefill-0.yaml")
    assert "StatefulSet" in kubernetes(rendering, "decode-0.yaml")
    router = kubernetes(rendering, "router-0.yaml")["Deployment"]["spec"]["template"]["spec"]
    container = router["containers"][0]
    assert "http://kimi-k3-prefill-0-api:8001" in container["args"]
    assert "http://kimi-k3-decode-0-api:8001" in container["args"]
    assert "resources" not in container
    assert "volumes" not in router


@pytest.mark.parametrize(
    ("name", "resource", "count"),
    [("vllm-two-nodes", "nvidia.com/gpu", 8), ("llamacpp-one-card", "nvidia.com/gpu", 1)],
)
def test_a_pod_asks_for_as_many_cards_as_its_rank_takes(
    name: str, resource: str, count: int, spec_of: SpecOf, rendered: Rendered
) -> None:
    """The number of the rank, under the name of its maker's plug-in."""
    text = file(rendered("kubernetes", spec_of(name)), "serve-0.yaml")
    assert f"{resource}: {count}" in text
    amd = file(rendered("kubernetes", spec_of("atom-amd")), "serve-0.yaml")
    assert "amd.com/gpu: 8" in amd
    assert "type: Unconfined" in amd


def test_pods_are_given_nothing_that_passes_for_a_setting(
    spec: LaunchSpec, rendered: Rendered
) -> None:
    """No variables of services (one called vllm makes VLLM_PORT), and no token of the cluster."""
    text = "".join(each.text for each in rendered("kubernetes", spec).files)
    pods = text.count("automountServiceAccountToken: false")
    assert pods == text.count("enableServiceLinks: false") == text.count("containers:")


def test_the_claim_is_as_large_as_the_model(spec_of: SpecOf, rendered: Rendered) -> None:
    """1,560,860,324,864 bytes are 1,454 GiB, rounded up; several readers share it."""
    spec = spec_of("vllm-two-nodes")
    rendering = rendered("kubernetes", spec, model_bytes=1_560_860_324_864, storage_class="nfs")
    claim = kubernetes(rendering, "storage.yaml")["PersistentVolumeClaim"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "1454Gi"
    assert claim["accessModes"] == ["ReadWriteMany"]
    named = rendered("kubernetes", spec, model_claim="weights")
    assert "storage.yaml" not in {each.path for each in named.files}
    assert "claimName: weights" in file(named, "serve-0.yaml")


def test_a_model_that_no_claim_keeps_is_told(spec_of: SpecOf, rendered: Rendered) -> None:
    """Fetched from a hub into a folder of the pod, it is fetched anew by the next pod."""
    spec = replace(spec_of("atom-amd"), model_mount=None)
    assert "model_not_kept" in {each.id for each in rendered("kubernetes", spec).findings}
    kept = rendered("kubernetes", spec, cache_claim="cache")
    assert "model_not_kept" not in {each.id for each in kept.findings}


def test_slurm_asks_for_nodes_cards_and_one_task_each(spec_of: SpecOf, rendered: Rendered) -> None:
    """Directives, the head from scontrol, the rank from Slurm."""
    rendering = rendered(
        "slurm", spec_of("prefill-decode"), partition="h200", account="a", time_limit="1-00:00:00"
    )
    text = file(rendering, "job.sbatch")
    for directive in (
        *("--nodes=3", "--ntasks-per-node=1", "--exclusive", "--gres=gpu:8"),
        *("--partition=h200", "--account=a", "--time=1-00:00:00", "--signal=TERM@120"),
    ):
        assert f"#SBATCH {directive}" in text.splitlines()
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST"' in text
    assert '2) exec bash "$here/decode-0.sh" ;;' in file(rendering, "ranks.sh")
    assert "--container-image=vllm/vllm-openai:v0.32.0@sha256:" in text


def test_mpi_has_a_task_per_card_and_slurm_starts_them(spec_of: SpecOf, rendered: Rendered) -> None:
    """All tasks of a node are of its rank; no other target starts them."""
    spec = spec_of("vllm-two-nodes")
    spec = replace(spec, ranks=tuple(replace(rank, tasks=4) for rank in spec.ranks))
    rendering = rendered("slurm", spec)
    text = file(rendering, "job.sbatch")
    assert "#SBATCH --ntasks-per-node=4" in text
    for word in ("--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--mpi=pmix"):
        assert f"  {word} \\\n" in text
    assert 'case "$SLURM_NODEID" in' in file(rendering, "ranks.sh")
    for target in ("shell", "docker", "kubernetes"):
        with pytest.raises(HeavyliftError) as caught:
            rendered(target, spec)
        assert caught.value.code == "REC116"


def test_slurm_leaves_hosts_to_the_cluster(spec_of: SpecOf, rendered: Rendered) -> None:
    """Stated hosts contradict the cluster's choice, there and in Kubernetes."""
    spec = spec_of("vllm-two-nodes")
    placed = replace(
        spec,
        ranks=tuple(replace(rank, host=f"10.0.0.{rank.rank}") for rank in spec.ranks),
    )
    for target in ("slurm", "kubernetes"):
        with pytest.raises(HeavyliftError) as caught:
            rendered(target, placed)
        assert caught.value.code == "REC115"


def test_ray_is_for_engines_that_meet_through_it(spec_of: SpecOf, rendered: Rendered) -> None:
    """The head starts the cluster and becomes the engine, the others join; else it is refused."""
    spec = spec_of("vllm-two-nodes")
    with pytest.raises(HeavyliftError) as caught:
        rendered("ray", spec)
    assert caught.value.code == "REC113"
    meeting = Rendezvous(kind="ray", head="serve-0", port=6379)
    rendering = rendered("ray", replace(spec, rendezvous=(meeting,)), runtime=Runtime.HOST)
    head = file(rendering, "serve-0.sh")
    assert 'ray start --head --port="$0" && exec "$@"' in head
    assert "6379 vllm serve" in " ".join(head.replace("\\\n", " ").split())
    assert '--address="${HOST_SERVE_0}":6379 --block' in " ".join(
        file(rendering, "serve-1.sh").replace("\\\n", " ").split()
    )
    assert [step.argv for step in rendering.steps if step.stage is Stage.STOP] == [
        ("ray", "stop"),
        ("ray", "stop"),
    ]


def test_a_rank_that_starts_ray_itself_stays_as_it_is(spec_of: SpecOf, rendered: Rendered) -> None:
    """So does a rank beside the pool; containers become the same scripts."""
    spec = spec_of("vllm-two-nodes")
    head, worker = spec.ranks
    worker = replace(worker, argv=("ray", "start", "--address", "x", "--block"))
    meeting = Rendezvous(kind="ray", head="serve-0", port=6379)
    rendering = rendered("ray", replace(spec, ranks=(head, worker), rendezvous=(meeting,)))
    words = " ".join(file(rendering, "serve-1.sh").replace("\\\n", " ").split())
    assert words.endswith("start --address x --block")
    assert "--entrypoint=ray" in words
    assert "--entrypoint=bash" in file(rendering, "serve-0.sh")


def test_a_number_behind_an_equals_sign_is_the_group_s_too(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """`--node-rank=1` becomes the worker's index; a flag elsewhere with that value does not."""
    spec = spec_of("vllm-two-nodes")
    head, worker = spec.ranks
    worker = replace(worker, argv=("vllm", "serve", "--node-rank=1", "--other", "1"))
    manifest = kubernetes(
        rendered("kubernetes", replace(spec, ranks=(head, worker))), "serve-0.yaml"
    )
    template = manifest["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    args = template["spec"]["containers"][0]["args"]
    assert args == ["serve", "--node-rank=$(LWS_WORKER_INDEX)", "--other", "1"]


def test_a_launch_without_cards_or_service_asks_for_neither(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """No port is published, no card asked for, and a path with a comma stays one path."""
    mount = Mount(source='/srv/a,"b"', target="/m", read_only=False)
    spec = replace(
        _with(spec_of("atom-amd"), gpus=0, serves=False, ports={}, argv=("engine", "--host")),
        model_mount=mount,
    )
    script = file(rendered("docker", spec), "serve-0.sh")
    assert "--publish" not in script
    assert "--device" not in script
    assert "--shm-size=34359738368" in script
    assert 'type=bind,"source=/srv/a,""b""",target=/m' in script
    assert "--gres" not in file(rendered("slurm", spec), "job.sbatch")


def test_an_image_of_a_registry_is_named_as_pyxis_takes_it(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """The registry ends with a number sign; an image of the default registry has none."""
    text = file(rendered("slurm", spec_of("llamacpp-one-card")), "job.sbatch")
    assert "--container-image=ghcr.io#ggml-org/" in text.replace("'", "")


# --- what cannot be written ----------------------------------------------------------------------


def _with(spec: LaunchSpec, **given: Any) -> LaunchSpec:
    return replace(spec, ranks=(replace(spec.ranks[0], **given),))


@pytest.mark.parametrize(
    ("code", "target", "change", "options"),
    [
        ("REC101", "shell", {}, {"name": "Kimi K3"}),
        ("REC102", "shell", {"name": "x y"}, {}),
        ("REC105", "docker", {"image": None}, {}),
        ("REC107", "kubernetes", {"argv": ("engine",)}, {}),
        ("REC108", "systemd", {}, {"folder": "/etc/a b"}),
        ("REC114", "shell", {"argv": ("engine", "{file:none.txt}")}, {}),
        ("REC114", "shell", {"argv": ("engine", "{host:serve-9}")}, {}),
    ],
)
def test_a_launch_that_cannot_be_written_says_why(
    code: str, target: str, change: dict[str, Any], options: dict[str, Any], spec_of: SpecOf
) -> None:
    """No target guesses: what is missing has a code."""
    spec = _with(spec_of("atom-amd"), **change)
    if code == "REC105":
        spec = replace(spec, image=None)
    access = Catalog().card_access("amd")
    with pytest.raises(HeavyliftError) as caught:
        render(target, spec, TargetOptions(**{"name": "k3", **options}), access)
    assert caught.value.code == code


def test_cards_without_a_known_way_to_them_are_refused(spec_of: SpecOf) -> None:
    """A vendor of whom nothing is known is not taken for another."""
    with pytest.raises(HeavyliftError) as caught:
        render("docker", spec_of("atom-amd"), TargetOptions(name="k3"), None)
    assert caught.value.code == "REC103"


def test_an_unknown_target_is_refused(spec_of: SpecOf) -> None:
    """The known ones are listed."""
    with pytest.raises(HeavyliftError) as caught:
        render("helm", spec_of("atom-amd"), TargetOptions(name="k3"))
    assert caught.value.code == "REC100"


def test_a_port_or_a_number_of_cards_that_nobody_states_is_refused(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """A cluster must be asked for a number, and a health check needs a port."""
    spec = _with(replace(spec_of("atom-amd"), gpus_per_node=None), gpus=None)
    with pytest.raises(HeavyliftError) as caught:
        rendered("kubernetes", spec)
    assert caught.value.code == "REC109"
    portless = replace(_with(spec_of("atom-amd"), ports={}, serves=True), served_port=None)
    with pytest.raises(HeavyliftError) as caught:
        rendered("docker", portless)
    assert caught.value.code == "REC104"


def test_slurm_runs_one_rank_with_cards_per_node_and_one_image_per_step(
    spec_of: SpecOf, rendered: Rendered
) -> None:
    """Two on a machine, and two images in a step, are refused."""
    spec = spec_of("prefill-decode")

    def other(rank: RankSpec) -> RankSpec:
        return replace(rank, image="other/image:v1") if rank.role == "decode" else rank

    with pytest.raises(HeavyliftError) as caught:
        rendered("slurm", replace(spec, ranks=tuple(map(other, spec.ranks))))
    assert caught.value.code == "REC112"
    one = spec_of("atom-amd").ranks[0]
    halves = tuple(replace(one, name=f"serve-{n}", host="a", gpus=4) for n in range(2))
    view = LaunchView(
        spec=replace(spec_of("atom-amd"), ranks=halves),
        options=TargetOptions(name="k3"),
        access=Catalog().card_access("amd"),
    )
    assert list(view.machines) == ["serve-0"]
    with pytest.raises(HeavyliftError) as caught:
        slurm.steps_of(view)
    assert caught.value.code == "REC111"


def test_an_engine_without_a_health_path_has_no_probe(spec_of: SpecOf, rendered: Rendered) -> None:
    """Nothing is asked that is not known to answer."""
    spec = replace(spec_of("atom-amd"), health=None)
    text = "".join(each.text for each in rendered("kubernetes", spec).files)
    assert "Probe" not in text
    assert "healthcheck" not in "".join(each.text for each in rendered("compose", spec).files)
    other = replace(spec, health=Health(path="/ready", start_period_s=1, interval_s=7))
    assert "/ready" in "".join(each.text for each in rendered("systemd", other).files)
