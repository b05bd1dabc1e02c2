"""Files that hold commands: compose, Kubernetes, recipes in YAML, systemd units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from heavylift.facts.command_schema import CommandEngineFacts
from heavylift.lint.command import Command, Container
from heavylift.lint.commands import CommandReader, mount, size
from heavylift.lint.words import Word, split

_YAML_HINT: Final = re.compile(
    r"^[ \t]*(?:-[ \t]+)?[\"']?(?:services|apiVersion|kind|spec|image|command|args|base_args|"
    r"[a-z_]*args|env|environment|model|model_id|recipes|[a-z][a-z0-9_]*[-_][a-z0-9_-]+)[\"']?:"
    r"(?:[ \t]|$)",
    re.MULTILINE,
)
_JSON: Final = re.compile(r"\A\s*\{\s*\"")
_UNIT: Final = re.compile(r"^\s*(?:\[Service\]|ExecStart\s*=)", re.MULTILINE)
_LONGEST_NUMBER: Final = 18
_ARGUMENT_KEYS: Final = re.compile(r"(?:[a-z_]*args|arguments|command|cmd|flags)", re.IGNORECASE)
_ENV_KEYS: Final = ("env", "environment", "env_vars")
_ENOUGH_FLAGS: Final = 2
_TWO_IN_ONE: Final = re.compile(r"--[\w.-]+\s+\S")
"""`--flag value` as one element of a list."""


def is_unit(text: str) -> bool:
    """True for a systemd unit."""
    return _UNIT.search(text) is not None


def documents(text: str) -> list[Any]:
    """The YAML documents of a text; empty when it is not YAML made of mappings."""
    if not _YAML_HINT.search(text) and not _JSON.match(text):
        return []
    try:
        loaded = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return [each for each in loaded if isinstance(each, dict | list)]


class FileReader:
    """Reads commands out of structured files."""

    def __init__(self, reader: CommandReader) -> None:
        self.reader = reader

    def yaml(self, loaded: list[Any]) -> tuple[str, list[Command]]:
        """The form of the file, and its commands."""
        forms: list[tuple[str, list[Command]]] = [
            ("compose", [each for doc in loaded for each in self._compose(doc)]),
            ("kubernetes", [each for doc in loaded for each in self._pods(doc)]),
            ("recipe", [each for doc in loaded for each in self._recipe(doc, {}, None, None)]),
            ("config", [each for doc in loaded for each in self._config(doc)]),
            ("variables", [each for doc in loaded for each in self._variables(doc)]),
        ]
        return next((pair for pair in forms if pair[1]), ("yaml", []))

    def unit(self, text: str) -> list[Command]:
        """The commands of a systemd unit."""
        joined = re.sub(r"\\\s*\n\s*", " ", text)
        env: dict[str, str] = {}
        commands: list[Command] = []
        budget: int | None = None
        for line in joined.splitlines():
            key, equals, value = line.strip().partition("=")
            if not equals:
                continue
            if key == "Environment":
                for word in (each for command in split(value).commands for each in command):
                    name, _, given = word.text.partition("=")
                    env[name] = given
            elif key.strip() == "TimeoutStartSec":
                budget = _seconds(value)
            elif key.strip() == "ExecStart":
                found, _ = self.reader.script(value.lstrip("-@:+! "))
                commands += found
        return [
            replace(
                each,
                env={**env, **each.env},
                container=each.container
                if budget is None
                else replace(
                    each.container or Container(form="systemd"),
                    start_budget_s=budget,
                    start_budget_from="TimeoutStartSec",
                ),
            )
            for each in commands
        ]

    # --- compose ---------------------------------------------------------------------------------

    def _compose(self, document: Any) -> Iterator[Command]:
        services = document.get("services") if isinstance(document, dict) else None
        if not isinstance(services, dict):
            return
        for service in services.values():
            if isinstance(service, dict) and (service.get("image") or service.get("command")):
                yield from self.reader.inside(
                    _compose_container(service),
                    [*_exec(service.get("entrypoint")), *_exec(service.get("command"))],
                    _env(service.get("environment")),
                )

    # --- Kubernetes ------------------------------------------------------------------------------

    def _pods(self, node: Any) -> Iterator[Command]:
        """Commands of every pod template, wherever a kind keeps it."""
        if isinstance(node, list):
            for each in node:
                yield from self._pods(each)
        if not isinstance(node, dict):
            return
        containers = node.get("containers")
        if isinstance(containers, list):
            for container in containers:
                if isinstance(container, dict):
                    yield from self._container(node, container)
            return
        if isinstance(node.get("image"), str) and ("args" in node or "command" in node):
            # One container cut out of its pod: what the pod has is not known.
            yield from self._container(node, node)
            return
        for each in node.values():
            yield from self._pods(each)

    def _container(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[Command]:
        yield from self.reader.inside(
            _pod_container(pod, container),
            [*_exec(container.get("command")), *_exec(container.get("args"))],
            _env(container.get("env")),
        )

    # --- recipes ---------------------------------------------------------------------------------

    def _recipe(
        self,
        node: Any,
        env: Mapping[str, str],
        model: str | None,
        engine: CommandEngineFacts | None,
    ) -> Iterator[Command]:
        """Commands of any mapping that lists flags: arguments, with variables and model around, and
        the engine that an image or a word beside them names.
        """
        if isinstance(node, list):
            for each in node:
                yield from self._recipe(each, env, model, engine)
        if not isinstance(node, dict):
            return
        env = {**env, **{k: v for key in _ENV_KEYS for k, v in _env(node.get(key)).items()}}
        named = node.get("model") or node.get("model_id") or node.get("model_name")
        model = named if isinstance(named, str) else model
        engine = self._named_engine(node) or engine
        listed = [
            word
            for key, value in node.items()
            if isinstance(key, str) and _ARGUMENT_KEYS.fullmatch(key) and _lists_flags(value)
            for word in _words(value)
        ]
        if listed:
            if model is not None and not listed[0].text.startswith("vllm"):
                listed = [*listed, Word("--model"), Word(model)]
            found = self.reader.read(listed, dict(env)) if _is_entered(listed, engine) else []
            if engine is not None and not found:
                found = [replace(self.reader.arguments(engine, listed, dict(env)), fragment=True)]
            yield from found or self.reader.read(_flags_first(listed), dict(env))
        for key, each in node.items():
            if isinstance(each, dict | list) and not _ARGUMENT_KEYS.fullmatch(str(key)):
                yield from self._recipe(each, env, model, engine)

    def _named_engine(self, node: Mapping[str, Any]) -> CommandEngineFacts | None:
        """The engine that a mapping names: by its image, or in a word of its own."""
        for key in ("image", "repository"):
            if isinstance(node.get(key), str):
                engine, _ = self.reader.image(node[key])
                if engine is not None:
                    return engine
        word = str(node.get("engine") or node.get("framework") or "").lower()
        return next((each for each in self.reader.engines if each.id == word), None)

    def _config(self, document: Any) -> Iterator[Command]:
        """A file of settings named as an engine's flags (`--config FILE`)."""
        if not isinstance(document, dict):
            return
        words: list[Word] = []
        for key, value in document.items():
            if not isinstance(key, str) or isinstance(value, dict | list):
                continue
            flag = f"--{key.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(Word(flag if value else f"--no-{key.replace('_', '-')}"))
            elif value is not None:
                words += [Word(flag), Word(str(value), quoted=True)]
        if sum(word.text.startswith("--") for word in words) >= _ENOUGH_FLAGS:
            for each in self.reader.read(words, {}):
                entry = each.engine.entries[0] if each.engine is not None else each.entry
                yield replace(each, fragment=False, entry=each.entry or entry)

    def _variables(self, document: Any) -> Iterator[Command]:
        """Variables alone, as an `environment:` or `env:` cut out of its file lists them."""
        nodes = document if isinstance(document, list) else [document]
        for node in nodes:
            found = (
                {name: value for key in _ENV_KEYS for name, value in _env(node.get(key)).items()}
                if isinstance(node, dict)
                else {}
            )
            if found:
                yield from self.reader.variables(found)


def _is_entered(words: list[Word], engine: CommandEngineFacts | None) -> bool:
    """True where the words themselves may say whose they are: no engine is named beside them, or
    they begin with a program.
    """
    return engine is None or not words[0].text.startswith("-")


def _flags_first(words: list[Word]) -> list[Word]:
    """Arguments of an image's own server: what stands before the flags is the model."""
    first = next((at for at, word in enumerate(words) if word.text.startswith("--")), 0)
    return [*words[first:], *words[:first]]


def _lists_flags(value: Any) -> bool:
    return any(word.text.startswith("--") for word in _words(value))


def _words(value: Any) -> list[Word]:
    """A command as a list or as one string."""
    if isinstance(value, str):
        return [word for command in split(value).commands for word in command]
    if not isinstance(value, list):
        return []
    words = []
    for each in value:
        text = str(each)
        if _TWO_IN_ONE.match(text):
            # "--flag value" in one item, as recipes write it.
            flag, _, rest = text.partition(" ")
            words += [Word(flag), Word(rest.strip(), quoted=True)]
        else:
            words.append(Word(text, quoted=" " in text))
    return words


def _exec(value: Any) -> list[Word]:
    """The words of a container, whose runtime hands each element of a list over as it is."""
    listed = value if isinstance(value, list) else []
    shared = {str(each).partition(" ")[0] for each in listed if _TWO_IN_ONE.match(str(each))}
    return [replace(word, in_one=word.text in shared) for word in _words(value)]


def _env(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): "" if each is None else str(each) for key, each in value.items()}
    found = {}
    for each in value if isinstance(value, list) else []:
        if isinstance(each, str):
            name, _, given = each.partition("=")
            found[name] = given
        elif isinstance(each, dict) and isinstance(each.get("name"), str):
            found[each["name"]] = str(each.get("value", f"${each['name']}"))
    return found


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(each) for each in value) if isinstance(value, list) else ()


def _compose_container(service: Mapping[str, Any]) -> Container:
    image = service.get("image")
    mounts = [
        mount(each)
        if isinstance(each, str)
        else (str(each.get("source", "")), str(each.get("target", "")))
        for each in _listed(service.get("volumes"))
        if isinstance(each, str | dict)
    ]
    budget, origin = _health_budget(service.get("healthcheck"))
    return Container(
        form="compose",
        image=image if isinstance(image, str) else None,
        mounts=tuple(each for each in mounts if each is not None),
        devices=(
            *_strings(service.get("devices")),
            *(("--gpus",) if "gpus" in service or _reserves_gpus(service) else ()),
            *(f"--runtime={each}" for each in _strings(service.get("runtime"))),
        ),
        groups=_strings(service.get("group_add")),
        ports=_strings(service.get("ports")),
        network=_text(service.get("network_mode")),
        ipc=_text(service.get("ipc")),
        shm_bytes=size(_text(service.get("shm_size"))),
        privileged=service.get("privileged") is True,
        entry_replaced=service.get("entrypoint") is not None,
        start_budget_s=budget,
        start_budget_from=origin,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _reserves_gpus(service: Mapping[str, Any]) -> bool:
    node: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        node = node.get(key) if isinstance(node, dict) else None
    return isinstance(node, list) and any(
        isinstance(each, dict) and "gpu" in str(each) for each in node
    )


def _health_budget(check: Any) -> tuple[int | None, str | None]:
    """Seconds until a container counts as unhealthy: the start period, then the misses."""
    if not isinstance(check, dict) or check.get("disable") is True:
        return None, None
    start = _seconds(str(check.get("start_period", "0s"))) or 0
    every = _seconds(str(check.get("interval", "30s"))) or 0
    misses = check.get("retries", 3)
    return start + every * (misses if isinstance(misses, int) else 3), "healthcheck"


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list; none in what is no list."""
    return [each for each in _listed(value) if isinstance(each, dict)]


def _listed(value: Any) -> list[Any]:
    """The list, or an empty one for what is none."""
    return value if isinstance(value, list) else []


def _pod_container(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Container:
    volumes = {str(each.get("name")): each for each in _mappings(pod.get("volumes"))}
    mounts: list[tuple[str, str]] = []
    shm: int | None = None
    for each in _mappings(container.get("volumeMounts")):
        inside = str(each.get("mountPath", ""))
        volume = volumes.get(str(each.get("name")), {})
        if inside == "/dev/shm":  # noqa: S108 - a mount point named in a manifest, not a file of ours
            memory = volume.get("emptyDir")
            limit = memory.get("sizeLimit") if isinstance(memory, dict) else None
            # Without a limit an in-memory volume may take half of the host.
            shm = size(_text(limit)) or 1 << 40
        mounts.append((str(each.get("name", "")), inside))
    security = container.get("securityContext")
    probe, origin = _probe_budget(container)
    image = container.get("image")
    return Container(
        form="kubernetes",
        image=image if isinstance(image, str) else None,
        mounts=tuple(mounts),
        devices=_resources(container.get("resources")),
        network="host" if pod.get("hostNetwork") is True else None,
        ipc="host" if pod.get("hostIPC") is True else None,
        shm_bytes=shm,
        privileged=isinstance(security, dict) and security.get("privileged") is True,
        entry_replaced=container.get("command") is not None,
        start_budget_s=probe,
        start_budget_from=origin,
    )


def _resources(resources: Any) -> tuple[str, ...]:
    """Names of the devices a container asks its cluster for (`vendor/gpu`)."""
    limits = resources.get("limits") if isinstance(resources, dict) else None
    return tuple(name for name in limits if "/" in str(name)) if isinstance(limits, dict) else ()


def _probe_budget(container: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Seconds until the pod is restarted for not being up: the start-up probe, else liveness."""
    for key in ("startupProbe", "livenessProbe"):
        probe = container.get(key)
        if isinstance(probe, dict):
            delay, every, misses = (
                probe.get(name, default)
                for name, default in (
                    ("initialDelaySeconds", 0),
                    ("periodSeconds", 10),
                    ("failureThreshold", 3),
                )
            )
            if all(isinstance(each, int) for each in (delay, every, misses)):
                return delay + every * misses, key
    return None, None


def _seconds(text: str) -> int | None:
    """Seconds of `90`, `5min`, `1h30m`; None for `infinity` and other words."""
    units = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600}
    found = re.findall(r"(\d+)\s*([a-z]*)", text.lower())
    if not found or any(
        unit not in units or len(number) > _LONGEST_NUMBER for number, unit in found
    ):
        return None
    return sum(int(number) * units[unit] for number, unit in found)
