"""Checks of the engine's environment, of variables, of the plan's arithmetic, of the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.outcome import (
    NotApplicableError,
    NotObservedError,
    Outcome,
    bad,
    info,
    ok,
    well,
)
from heavylift.preflight.checks.view import AMD, NVIDIA, View
from heavylift.records.finding import Severity
from heavylift.telemetry.values import version

# --- the engine's environment --------------------------------------------------------------------


def torch_build(view: View, _check: CheckFacts) -> Outcome:
    """Torch is built for the vendor whose cards are here."""
    build = view.engine("torch")
    shown = f"{build.get('version')}, CUDA {build.get('cuda')}, HIP {build.get('hip')}"
    if AMD in view.vendors and not build.get("hip"):
        return bad("not_hip", shown, expected="HIP")
    if NVIDIA in view.vendors and not build.get("cuda"):
        return bad("not_cuda", shown, expected="CUDA")
    if not view.vendors:
        return info("no_gpu", shown)
    if not build.get("available"):
        return bad("no_device", shown)
    wanted = view.planned_gpus
    devices = int(build.get("devices", 0))
    if wanted is not None and devices < wanted:
        return bad("fewer", devices, expected=wanted)
    return ok(shown)


def engine_import(view: View, _check: CheckFacts) -> Outcome:
    """The compiled parts of the engine load beside the torch that is there."""
    modules = view.engine("imports").get("modules", {})
    if not modules:
        raise NotObservedError("no_engine_package", "engine:imports")
    broken = [f"{name}: {reason}" for name, reason in modules.items() if reason]
    if broken:
        symbol = any("undefined symbol" in line for line in broken)
        return bad("symbol" if symbol else "import", len(broken), *broken)
    return ok(" ".join(modules))


def _engine_version(view: View) -> tuple[str, str]:
    """The engine and its version: of the environment, else of the launch."""
    plan = view.target.plan
    name = plan.engine if plan is not None else None
    try:
        found = view.engine("versions")
    except NotObservedError:
        if view.target.spec is not None:
            return view.target.spec.engine, view.target.spec.engine_version
        raise
    engines = [name] if name is not None else ["vllm", "sglang", "atom", "tokenspeed"]
    for engine in engines:
        stated = found.get(engine)
        if isinstance(stated, str):
            return engine, stated
    raise NotObservedError("no_engine_package", "engine:versions")


def engine_min(view: View, _check: CheckFacts) -> Outcome:
    """The engine is of the release that the model needs, or later."""
    recipe = view.target.recipe
    if recipe is None or recipe.since is None:
        raise NotApplicableError("no_recipe")
    engine, stated = _engine_version(view)
    shown = f"{engine} {stated}"
    if not version(stated):
        return bad("unnumbered", shown, expected=recipe.since)
    if version(stated) < version(recipe.since):
        return bad("old", shown, expected=recipe.since)
    return ok(shown, expected=recipe.since)


def transformers(view: View, check: CheckFacts) -> Outcome:
    """The checkpoint's tokenizer imports what this transformers still has there."""
    files = [str(name) for name in view.checkpoint.get("bytes_to_unicode", ())]
    if not files:
        return well("no_import")
    stated = view.engine("versions").get("transformers")
    if not isinstance(stated, str):
        raise NotObservedError("package_missing", "transformers")
    moved = str(check.values["moved_in"])
    if version(stated) >= version(moved):
        return bad("moved", stated, *files, expected=f"< {moved}")
    return ok(stated, *files)


_PARSER_FLAGS: Final = re.compile(r"--(tool-call|reasoning)-parser[= ](\S+)")


def parsers(view: View, _check: CheckFacts) -> Outcome:
    """The engine knows the tool and reasoning parsers that the launch names."""
    spec, recipe = view.target.spec, view.target.recipe
    lines = [] if recipe is None else list(recipe.arguments)
    lines += [] if spec is None else [" ".join(rank.argv) for rank in spec.ranks]
    wanted = {
        (("tool" if kind == "tool-call" else kind), name)
        for line in lines
        for kind, name in _PARSER_FLAGS.findall(line)
    }
    if not wanted:
        raise NotApplicableError("no_parser_named")
    known = view.engine("parsers")
    told = {kind: set(map(str, known.get(kind, ()))) for kind in ("tool", "reasoning")}
    if not any(told.values()):
        raise NotObservedError("not_stated", "engine:parsers")
    missing = sorted(f"{kind} {name}" for kind, name in wanted if name not in told[kind])
    shown = ", ".join(sorted(f"{kind} {name}" for kind, name in wanted))
    return bad("unknown", ", ".join(missing)) if missing else ok(shown)


def toolchain(view: View, _check: CheckFacts) -> Outcome:
    """Kernels that are built at start have their compiler, ninja and a place to go."""
    found = view.engine("toolchain")
    compiler = "hipcc" if AMD in view.vendors else "nvcc"
    missing = [name for name in (compiler, "ninja", "cxx") if not found.get(name)]
    closed = [path for path, writable in found.get("writable", {}).items() if not writable]
    if closed:
        return bad("read_only", " ".join(closed))
    if missing:
        return bad("missing", " ".join(missing))
    return ok(str(found.get(compiler)))


_COMPILERS: Final = ("ninja", "hipcc", "nvcc", "cc1plus", "ptxas")


def stale_locks(view: View, _check: CheckFacts) -> Outcome:
    """No lock of a kernel build stands that nobody is building under."""
    patterns = [each for each in view.keys("glob") if each.endswith(("lock", "lock_*", "*.lock"))]
    locks = [path for pattern in patterns for path in view.paths(pattern)]
    hidden: NotObservedError | None = None
    try:
        locks += [str(path) for path in view.engine("toolchain").get("locks", ())]
    except NotObservedError as error:
        hidden = error
    if not patterns:
        raise NotObservedError("not_collected", "glob:")
    if not locks and hidden is not None and AMD in view.vendors:
        # AITER keeps its locks inside the engine's environment.
        raise hidden
    if not locks:
        return ok(0)
    builders = [each for each in view.processes if any(word in each.title for word in _COMPILERS)]
    if builders:
        return info("building", len(locks), *locks[:5])
    return bad("stale", len(locks), *locks[:5])


# --- variables -----------------------------------------------------------------------------------


def env_required(view: View, check: CheckFacts) -> Outcome:
    """The variables of the published recipe are set, or at least not set otherwise."""
    recipe = view.target.recipe
    if recipe is None or not recipe.environment:
        raise NotApplicableError("no_recipe")
    have = view.environment
    must = set(str(check.values["required"]).split())
    wrong = {k: v for k, v in recipe.environment.items() if k in have and have[k] != v}
    if wrong:
        lines = [f"{k}={have[k]}, {v} published" for k, v in sorted(wrong.items())]
        severity = None if must & set(wrong) else Severity.WARN
        return bad("other", ", ".join(sorted(wrong)), *lines, severity=severity)
    unset = {k: v for k, v in recipe.environment.items() if k not in have}
    lines = [f"{k}={v}" for k, v in sorted(unset.items())]
    if unset and view.target.spec is not None:
        severity = None if must & set(unset) else Severity.WARN
        return bad("unset", ", ".join(sorted(unset)), *lines, severity=severity)
    if unset:
        return info("to_set", len(unset), *lines)
    return ok(len(recipe.environment))


def env_forbidden(view: View, check: CheckFacts) -> Outcome:
    """No variable or setting is in force that is known to hang or to spoil answers."""
    have = view.environment
    found = [name for name in str(check.values["unset"]).split() if name in have]
    if found:
        return bad("set", ", ".join(found), *(f"{name}={have[name]}" for name in found))
    plan = view.target.plan
    if plan is None or view.target.gpu is None:
        return well("none")
    # `family:architecture:kv_cache_dtype` for settings that the model refuses on a card.
    now = (
        f"{'' if view.target.model is None else view.target.model.family}"
        f":{view.target.gpu.architecture}:{plan.kv_cache_dtype}"
    )
    if now in str(check.values["kv_dtypes"]).split():
        return bad("kv_dtype", plan.kv_cache_dtype, now)
    return well("none")


# --- the plan's arithmetic -----------------------------------------------------------------------


def plan_heads(view: View, check: CheckFacts) -> Outcome:
    """Attention heads divide over the tensor ranks, into a number the kernels have."""
    heads = view.model.dims.get("heads")
    if heads is None:
        raise NotObservedError("not_stated", "heads")
    tensor = view.plan.layout.tensor_parallel_size
    shown = f"{heads.value} / {tensor}"
    if heads.value % tensor:
        return bad("odd", shown)
    each = heads.value // tensor
    kernels = {int(size) for size in str(check.values["latent_kernels"]).split()}
    latent = "kv_lora_rank" in view.model.dims
    amd = view.target.gpu is not None and view.target.gpu.vendor == AMD
    if latent and amd and each not in kernels:
        padded = min((size for size in kernels if size >= each), default=0)
        return bad("no_kernel", each, severity=Severity.WARN, expected=padded or None)
    return ok(f"{shown} = {each}")


def quant_block(view: View, check: CheckFacts) -> Outcome:
    """What a rank holds of a quantised dimension is whole blocks."""
    dims = view.model.dim_values
    layout = view.plan.layout
    block = next((dims[name] for name in str(check.values["blocks"]).split() if name in dims), None)
    if block is None:
        raise NotApplicableError("no_block_quantisation")
    name = str(check.values["dimension"])
    inner = dims.get(name)
    if inner is None:
        raise NotApplicableError("no_experts")
    # The ranks that share an expert: one where experts are spread whole.
    sharing = layout.tensor_parallel_size * layout.data_parallel_size
    ranks = max(1, sharing // layout.expert_parallel_size)
    shown = f"{inner} / {ranks} / {block}"
    if inner % ranks or inner // ranks % block:
        return bad("cut", shown, expected=block)
    return ok(f"{shown} = {inner // ranks // block}")


def plan_experts(view: View, _check: CheckFacts) -> Outcome:
    """Experts divide over the ranks they are spread over."""
    experts = view.model.dims.get("experts")
    size = view.plan.layout.expert_parallel_size
    if experts is None:
        raise NotApplicableError("no_experts")
    shown = f"{experts.value} / {size}"
    return bad("odd", shown) if experts.value % size else ok(shown)


# --- the checkpoint ------------------------------------------------------------------------------

_LFS: Final = frozenset({"lfs_pointer"})
_INDEX: Final = frozenset(
    {
        "file_missing",
        "file_unreadable",
        "not_a_file",
        "link_outside",
        "path_outside",
        "tensor_missing",
        "tensor_not_listed",
        "tensor_elsewhere",
        "tensor_repeated",
        "total_differs",
    }
)


def _safetensors(view: View) -> Mapping[str, Any]:
    report = view.checkpoint
    if report.get("format") != "safetensors":
        raise NotApplicableError("gguf")
    return report


def _defects(report: Mapping[str, Any], wanted: Iterable[str] | None) -> list[str]:
    """Defects of some kinds; None = those that are of none of the other kinds."""
    chosen = None if wanted is None else frozenset(wanted)
    return [
        f"{each['path']}: {each['problem']} {each.get('detail', '')}".strip()
        for each in report.get("defects", ())
        if (
            each["problem"] in chosen
            if chosen is not None
            else each["problem"] not in _LFS | _INDEX
        )
    ]


def ckpt_index(view: View, _check: CheckFacts) -> Outcome:
    """Every file and tensor that the index names is there, and the sizes are as published."""
    report = _safetensors(view)
    if "error" in report:
        return bad("unreadable", str(report["error"]))
    found = _defects(report, _INDEX)
    if found:
        return bad("defects", len(found), *found[:8])
    size = int(report["bytes"])
    plan = view.target.plan
    # Headers are in the files but not in the plan's sum; a shard is far larger than all headers.
    if plan is not None and plan.checkpoint_bytes and size < plan.checkpoint_bytes:
        return bad("fewer_bytes", size, expected=plan.checkpoint_bytes)
    return ok(f"{report['files']} files, {size:,} B")


def ckpt_header(view: View, _check: CheckFacts) -> Outcome:
    """The header of every shard is sound and its last tensor ends where the file does."""
    report = _safetensors(view)
    if "error" in report:
        raise NotObservedError("unreadable", "checkpoint:")
    found = _defects(report, None)
    if found:
        return bad("defects", len(found), *found[:8])
    return ok(f"{report['tensors']:,} tensors")


def ckpt_lfs(view: View, _check: CheckFacts) -> Outcome:
    """No file is a Git LFS pointer in place of weights."""
    report = _safetensors(view)
    if "error" in report:
        raise NotObservedError("unreadable", "checkpoint:")
    found = _defects(report, _LFS)
    return bad("pointers", len(found), *found[:8]) if found else ok(0)


def ckpt_gguf(view: View, _check: CheckFacts) -> Outcome:
    """All parts of a split GGUF file are there and the first one is given."""
    report = view.checkpoint
    if report.get("format") != "gguf":
        raise NotApplicableError("safetensors")
    if "error" in report:
        return bad("unreadable", str(report["error"]))
    parts = int(report.get("split_count") or report.get("named_count") or 1)
    present = int(report.get("present", 0))
    shown = f"{report.get('architecture')}, {present} / {parts}"
    if present < parts:
        return bad("missing", shown)
    if not report.get("first_given", True):
        return bad("not_first", shown)
    return ok(shown)


def ckpt_remote_code(view: View, _check: CheckFacts) -> Outcome:
    """A checkpoint that brings code is started knowingly, at a pinned revision."""
    if not view.checkpoint.get("configs"):
        # Without a configuration nobody has said that there is no code.
        raise NotObservedError("not_stated", "config.json")
    asking = [str(name) for name in view.checkpoint.get("auto_map", ())]
    if not asking:
        return well("none")
    spec = view.target.spec
    if spec is None:
        return info("asks", ", ".join(asking))
    # Engines write it with dashes or with underscores.
    words = {word.replace("_", "-") for rank in spec.ranks for word in rank.argv}
    if "--trust-remote-code" not in words:
        return bad("not_allowed", ", ".join(asking))
    if spec.model_revision is None:
        return bad("not_pinned", ", ".join(asking), severity=Severity.WARN)
    return ok(spec.model_revision, *asking)


CHECKS: Final = {
    "py.torch_build": torch_build,
    "py.engine_import": engine_import,
    "py.engine_min": engine_min,
    "py.transformers": transformers,
    "py.parsers": parsers,
    "jit.toolchain": toolchain,
    "jit.stale_locks": stale_locks,
    "env.required": env_required,
    "env.forbidden": env_forbidden,
    "plan.heads": plan_heads,
    "plan.quant_block": quant_block,
    "plan.experts": plan_experts,
    "ckpt.index": ckpt_index,
    "ckpt.header": ckpt_header,
    "ckpt.lfs": ckpt_lfs,
    "ckpt.gguf": ckpt_gguf,
    "ckpt.remote_code": ckpt_remote_code,
}
