"""A model on a hub, read over HTTP: what is asked, what is sent along, and every way to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heavylift.checkpoint.gguf_writer import TensorSpec, build, write_gguf
from heavylift.checkpoint.hub import HubFiles
from heavylift.checkpoint.hub_settings import HubId, HubSettings, settings
from heavylift.devserver.hub import Faults, HubServer
from heavylift.devserver.sparse_checkpoint import (
    SparseTensor,
    safetensors_variant,
    write_checkpoint,
    write_file,
)
from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import HubReader, inspect
from heavylift.planning import Planning
from heavylift.records.inspection import Inspection, Origin
from heavylift.records.plan import PlanRequest

CATALOG = Catalog()
SECRET = "hf_thistokenmuststaysecret"  # noqa: S105 - a made-up one
MODEL = "acme/tiny"


async def no_sleep(_seconds: float) -> None:
    """Waiting costs tests no time."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A hub's folders: a Llama of one's own, and GGUF models in folders."""
    known = CATALOG.model("llama-3.1-8b")
    write_checkpoint(known, CATALOG.family("llama"), safetensors_variant(known), tmp_path / MODEL)
    for quant in ("Q4_K_M", "Q8_0"):
        folder = tmp_path / "acme/tiny-GGUF" / quant
        folder.mkdir(parents=True)
        layout = build({}, [TensorSpec(name="output.weight", dims=(256, 4), dtype="Q8_0")])
        write_gguf(folder / f"tiny-{quant}.gguf", layout, None)
    return tmp_path


@pytest.fixture
def hub(root: Path) -> Iterator[HubServer]:
    """A hub that behaves."""
    with HubServer(root=root) as server:
        yield server


def reach_of(
    hub: HubServer, **environment: str
) -> Callable[[HubId], AbstractContextManager[HubReader]]:
    """Opens models on the hub, with these variables set."""
    return lambda model: HubFiles(settings_of(hub, **environment), model, sleep=no_sleep)


def settings_of(hub: HubServer, **environment: str) -> HubSettings:
    """The settings that an environment with this hub as a mirror makes."""
    given = {
        "HF_ENDPOINT": hub.url,
        "MODELSCOPE_ENDPOINT": hub.url,
        "HF_HOME": "/nonexistent",
        **environment,
    }
    return settings(CATALOG.hubs(), given)


def inspected(hub: HubServer, target: str = MODEL, **environment: str) -> Inspection:
    """What `inspect` finds on the hub."""
    return inspect(target, CATALOG, reach_of(hub, **environment))


def refused(hub: HubServer, target: str = MODEL, **environment: str) -> HeavyliftError:
    """The error that inspecting ends with."""
    with pytest.raises(HeavyliftError) as caught:
        inspected(hub, target, **environment)
    return caught.value


def test_headers_on_a_hub_say_what_the_same_files_say_here(hub: HubServer, root: Path) -> None:
    """Figures are equal, and far fewer bytes than the weights were asked for."""
    here = inspect(str(root / MODEL), CATALOG, None)
    there = inspected(hub)
    assert there.origin is Origin.HUB
    assert (there.total_params, there.active_params) == (8_030_261_248, 8_030_261_248 - 525_336_576)
    assert (there.stored, there.layers, there.files, there.sound) == (
        here.stored,
        here.layers,
        here.files,
        True,
    )
    assert all(each.range is not None for each in hub.asked if "/resolve/" in each.path)


def test_a_server_that_ignores_ranges_is_read_no_further_than_needed(hub: HubServer) -> None:
    """The reply of 16 GB is left after the header."""
    hub.faults.ignore_ranges = True
    assert inspected(hub).total_params == 8_030_261_248


def test_a_model_the_facts_know_is_not_asked_for(hub: HubServer) -> None:
    """Nothing goes over the network when the facts suffice, unless it is asked to."""
    found = inspect("moonshotai/Kimi-K3", CATALOG, reach_of(hub))
    assert (found.origin, found.total_params) == (Origin.FACTS, 2_779_931_837_184)
    assert hub.asked == []
    with pytest.raises(HeavyliftError) as caught:
        inspect("moonshotai/Kimi-K3", CATALOG, reach_of(hub), fresh=True)
    assert caught.value.code == "HUB005"


def test_a_list_may_come_in_pages(hub: HubServer) -> None:
    """Every page is asked for before anything is counted."""
    hub.faults.page = 2
    assert inspected(hub).sound


def test_modelscope_answers_under_its_own_addresses(hub: HubServer) -> None:
    """The variable that engines know chooses it; no Hugging Face token goes there."""
    found = inspected(hub, VLLM_USE_MODELSCOPE="True", HF_TOKEN=SECRET)
    assert found.total_params == 8_030_261_248
    assert all(each.path.startswith("/api/v1/models/") for each in hub.asked)
    assert {each.authorization for each in hub.asked} == {None}


@pytest.mark.parametrize("place", ["variable", "file"])
def test_a_token_is_found_in_the_usual_places(hub: HubServer, tmp_path: Path, place: str) -> None:
    """HF_TOKEN, or the token file under HF_HOME; it is in no text of ours."""
    hub.faults.token = SECRET
    (tmp_path / "token").write_text(f"{SECRET}\n")
    given = {"HF_TOKEN": SECRET} if place == "variable" else {"HF_HOME": str(tmp_path)}
    chosen = settings_of(hub, **given)
    assert SECRET not in repr(chosen)
    found = inspect(MODEL, CATALOG, lambda model: HubFiles(chosen, model))
    assert found.sound
    assert SECRET not in repr(found)
    assert {each.authorization for each in hub.asked} == {f"Bearer {SECRET}"}


def test_a_token_does_not_follow_to_another_host(hub: HubServer, root: Path) -> None:
    """Files come from a store elsewhere; only the hub itself sees the token."""
    with HubServer(root=root) as store:
        hub.faults.token = SECRET
        hub.faults.send_on = store.url
        assert inspected(hub, HF_TOKEN=SECRET).sound
        assert store.asked
        assert {each.authorization for each in store.asked} == {None}


def test_a_token_is_not_sent_over_an_open_connection() -> None:
    """Another machine gets it over https only; this one over http too."""
    hubs = CATALOG.hubs()

    def of(endpoint: str) -> bool:
        return settings(hubs, {"HF_ENDPOINT": endpoint, "HF_TOKEN": SECRET}).may_send_token

    assert [of("http://mirror.lan"), of("https://mirror.lan"), of("http://[::1]:80")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (Faults(token="another"), "HUB003"),  # noqa: S106 - a made-up one
        (Faults(refuse=401), "HUB003"),
        (Faults(refuse=403), "HUB004"),
        (Faults(refuse=404), "HUB005"),
        (Faults(refuse=429), "HUB006"),
        (Faults(refuse=429, retry_after="3600"), "HUB006"),
        (Faults(refuse=503), "HUB007"),
        (Faults(refuse=418), "HUB007"),
        (Faults(cut_bytes=100), "HUB008"),
        (Faults(longer_by=1), "HUB008"),
        (Faults(listing=b"<html>"), "HUB009"),
        (Faults(listing=b"[]"), "HUB009"),
        (Faults(listing=b'[{"path": "a.safetensors"}]'), "HUB009"),
        (Faults(send_on="ftp://elsewhere"), "HUB010"),
    ],
)
def test_every_refusal_has_its_own_code(hub: HubServer, faults: Faults, code: str) -> None:
    """A status, a cut reply, a lying range, a list that is none, a redirect that is not taken."""
    hub.faults = faults
    assert refused(hub).code == code


def test_a_redirect_in_circles_ends(hub: HubServer) -> None:
    """After five hops."""
    hub.faults.send_on = hub.url
    assert refused(hub).code == "HUB010"


@pytest.mark.parametrize(
    "faults", [Faults(refuse=503, refuse_times=2), Faults(cut_bytes=9, cut_times=1)]
)
def test_what_passes_is_asked_again(hub: HubServer, faults: Faults) -> None:
    """A busy hub and a lost connection cost a repetition, not the answer."""
    hub.faults = faults
    assert inspected(hub).sound


def test_a_refused_token_is_named_by_its_place(hub: HubServer) -> None:
    """The error says where the token was found, and never what it is."""
    hub.faults.token = "another"  # noqa: S105 - a made-up one
    error = refused(hub, HF_TOKEN=SECRET)
    assert (error.code, error.params["token"]) == ("HUB004", "HF_TOKEN")
    assert SECRET not in str(error)


def test_no_hub_is_asked_when_that_is_forbidden(hub: HubServer) -> None:
    """HF_HUB_OFFLINE=1: the sentence names the variable, and nothing is sent."""
    error = refused(hub, HF_HUB_OFFLINE="1")
    assert (error.code, error.params["variable"]) == ("HUB001", "HF_HUB_OFFLINE")
    assert hub.asked == []


def test_nobody_there_is_a_sentence(root: Path) -> None:
    """A hub that does not listen is named."""
    with HubServer(root=root) as gone:
        pass
    assert refused(gone).code == "HUB002"


@pytest.mark.parametrize("endpoint", ["ftp://x", "https://user:word@x", "http://", "http://x:y"])
def test_an_address_that_is_none_is_refused_without_repeating_it(endpoint: str) -> None:
    """A password in an address would end up in logs."""
    with pytest.raises(HeavyliftError) as caught:
        settings(CATALOG.hubs(), {"HF_ENDPOINT": endpoint})
    assert (caught.value.code, caught.value.params) == ("HUB011", {"variable": "HF_ENDPOINT"})


def test_a_shard_that_is_a_pointer_or_cut_off_is_named(hub: HubServer, root: Path) -> None:
    """The defects of files on a hub are those of files here."""
    first, second, *_ = sorted((root / MODEL).glob("*.safetensors"))
    first.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with second.open("r+b") as file:
        file.truncate(second.stat().st_size - 1)
    found = inspected(hub)
    assert not found.sound
    assert [(each.path, each.problem) for each in found.defects] == [
        (first.name, "lfs_pointer"),
        (second.name, "file_truncated"),
    ]


def test_a_header_longer_than_the_first_read_is_fetched_whole(hub: HubServer, root: Path) -> None:
    """Thirty thousand tensors in one file: the header has more than a megabyte."""
    folder = root / "acme/many"
    folder.mkdir()
    tensors = [
        SparseTensor(name=f"x.layers.{n}.w", dtype="BF16", shape=(2, 3)) for n in range(30_000)
    ]
    write_file(folder / "model.safetensors", tensors)
    assert inspected(hub, "acme/many").tensors == 30_000


def test_one_of_several_gguf_models_is_named_by_its_part(hub: HubServer) -> None:
    """owner/name:Q4_K_M is one; without a part they are listed; an unknown part lists them too."""
    found = inspected(hub, "acme/tiny-GGUF:Q4_K_M")
    assert (found.file_format, found.total_params, found.files[0].name) == (
        "gguf",
        1024,
        "tiny-Q4_K_M.gguf",
    )
    for target, code in (("acme/tiny-GGUF", "CKPT029"), ("acme/tiny-GGUF:Q2", "CKPT031")):
        error = refused(hub, target)
        assert error.code == code
        assert "Q8_0/tiny-Q8_0.gguf" in str(error.params["names"])


def test_what_a_quantiser_wrote_is_read_from_a_hub_as_from_a_folder(
    hub: HubServer, root: Path
) -> None:
    """The file beside the config is fetched with it."""
    beside = '{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}'
    (root / MODEL / "hf_quant_config.json").write_text(beside)
    found = Planning(reach=reach_of(hub)).knowledge(MODEL)
    assert found.model.model.variants[0].kv_cache_dtype == "fp8"


def test_a_plan_reads_a_model_that_the_facts_do_not_know(hub: HubServer, root: Path) -> None:
    """`plan owner/name` gives what `plan FOLDER` gives."""
    planning = Planning(reach=reach_of(hub))
    _, rack = planning.rack("1xH100")
    assert rack is not None
    there, here = (
        planning.plan(
            PlanRequest(model=name, rack=rack), planning.knowledge(name), with_fixes=False
        )
        for name in (MODEL, str(root / MODEL))
    )
    assert there.per_gpu.weights_bytes == here.per_gpu.weights_bytes
    assert there.verdict is here.verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", HubId(id="a/b")),
        ("a/b@v1", HubId(id="a/b", revision="v1")),
        ("a/b:Q4_K_M", HubId(id="a/b", part="Q4_K_M")),
        ("a/b@refs/pr/1:x/y.gguf", HubId(id="a/b", revision="refs/pr/1", part="x/y.gguf")),
        ("a", None),
        ("a/b/c", None),
        ("a/..", None),
        ("a/b?x", None),
        ("a/b:../x", None),
        ("http://a/b", None),
    ],
)
def test_an_id_is_an_owner_and_a_name(text: str, expected: HubId | None) -> None:
    """With a revision and a part; paths and addresses are no ids."""
    assert HubId.parse(text) == expected


def test_addresses_are_quoted(hub: HubServer) -> None:
    """A revision with a slash and a file with odd letters reach the hub as themselves."""
    chosen = settings_of(hub)
    model = HubId(id="a/b", revision="refs/pr/1")
    assert chosen.url(chosen.facts.file, model, "x y/z?.json") == (
        f"{hub.url}/a/b/resolve/refs%2Fpr%2F1/x%20y/z%3F.json"
    )
    scope = settings_of(hub, USE_MODELSCOPE_HUB="1")
    assert scope.url(scope.facts.file, HubId(id="a/b"), "x/y&.json").endswith(
        "/api/v1/models/a/b/repo?Revision=master&FilePath=x%2Fy%26.json"
    )
