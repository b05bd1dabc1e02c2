"""From words to commands: which engine they start, in which container, with which variables."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from heavylift.facts.command_schema import CommandEngineFacts, ImageFacts
from heavylift.lint.arguments import is_flag, options
from heavylift.lint.command import Command, Container, Option, Placed, Span
from heavylift.lint.words import Split, Word, split
from heavylift.recipe.flags import FlagTable
from heavylift.units import parse_bytes

ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^}]*))?\}|([A-Za-z_]\w*))")
_ARRAY: Final = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_RUNTIMES: Final = ("docker", "podman", "nerdctl")
_PYTHON: Final = re.compile(r"python[\d.]*")
_LONGEST_WORD: Final = 1 << 16
_SHM_UNITS: Final = {"b": "b", "k": "kib", "m": "mib", "g": "gib", "t": "tib"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Words that start an engine, and what they say beside that."""

    engine: CommandEngineFacts
    text: str
    launcher: str | None = None
    legacy: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words, in order."""
        return tuple(self.text.split())


@dataclass(frozen=True, slots=True)
class Started:
    """Where among words an engine is started: its first word, and the first after its entry."""

    entry: Entry
    first: int
    after: int


class CommandReader:
    """Finds and reads commands among words."""

    def __init__(
        self, engines: Sequence[CommandEngineFacts], tables: Mapping[str, FlagTable]
    ) -> None:
        """`tables` maps the ids of flag tables to them, `docker` among them."""
        self.engines = engines
        self.tables = tables
        self._entries: dict[str, list[Entry]] = {}
        for engine in engines:
            for entry in _entries_of(engine):
                self._entries.setdefault(entry.words[0], []).append(entry)

    def table(self, engine: CommandEngineFacts | None) -> FlagTable | None:
        """The flag table of an engine, where it has one."""
        return None if engine is None or engine.table is None else self.tables[engine.table]

    # --- a whole script --------------------------------------------------------------------------

    def script(self, text: str) -> tuple[list[Command], Split]:
        """The commands of shell text, and how it was split."""
        out = split(text)
        scope: dict[str, str] = {}
        places: dict[str, Span | None] = {}
        exported: set[str] = set()
        arrays: dict[str, tuple[Word, ...]] = {}
        commands: list[Command] = []
        pending = list(out.commands)
        while pending:
            words = expand(pending.pop(0), scope, arrays)
            if _runs_container(words) and not self._has_image(words) and pending:
                # The line breaks of a container's command were lost without their backslashes.
                pending[0] = [*words, *pending[0]]
                continue
            found = self.read(words, {name: scope[name] for name in exported})
            if found:
                known = {name: at for name in exported if (at := places.get(name)) is not None}
                commands += [
                    replace(each, placed=replace(each.placed, env={**known, **each.placed.env}))
                    for each in found
                ]
            else:
                exported |= _remember(words, scope, arrays)
                places |= {word.text.partition("=")[0]: word.at for word in words}
        if not commands:
            commands = self._no_command(out.commands, scope)
        return commands, out

    def _has_image(self, words: Sequence[Word]) -> bool:
        start = _container_start(words)
        _, rest = options(words[start:], self.tables["docker"], stop_at_positional=True)
        return bool(rest)

    def _no_command(
        self, all_words: Sequence[Sequence[Word]], scope: dict[str, str]
    ) -> list[Command]:
        """What is left where no engine is started: variables, or a program that is not known."""
        for words in all_words:
            if any(is_flag(word.text) for word in words):
                given, rest = options(words, None)
                return [
                    Command(
                        engine=None,
                        options=given,
                        positionals=tuple(word.text for word in rest),
                        env={**scope, **_assignments(words)},
                        fragment=True,
                    )
                ]
        loose = {name: value for words in all_words for name, value in _assignments(words).items()}
        scope = {**loose, **scope}
        if not scope:
            return []
        return self.variables(scope)

    def variables(self, env: dict[str, str]) -> list[Command]:
        """Variables alone, for the engine whose own they are."""
        engine = next(
            (
                each
                for each in self.engines
                if any(name.startswith(prefix) for prefix in each.env_prefixes for name in env)
            ),
            None,
        )
        return [Command(engine=engine, env=env, fragment=True)]

    def starts(self, words: Sequence[str]) -> bool:
        """Whether these words start an engine."""
        return self._has_entry([Word(word, quoted=" " in word) for word in words])

    # --- one simple command ----------------------------------------------------------------------

    def read(self, words: Sequence[Word], env: dict[str, str]) -> list[Command]:
        """The commands in a list of words: none, one, or several run together by a lost newline."""
        start = _container_start(words)
        if start:
            before = {**env, **_assignments(words[:start])}
            return self._contained(words[start:], before)
        started = self._started(words)
        if started is None:
            return self._nested(words, env) or self._loose_flags(words, env)
        commands: list[Command] = []
        begin = 0
        while started is not None:
            following = self._started(words, started.after)
            cut = len(words) if following is None else following.first
            while following and cut > started.after and ASSIGNMENT.fullmatch(words[cut - 1].text):
                cut -= 1
            commands.append(self._command(started, words[:cut], begin, env))
            started, begin = following, cut
        return commands

    def _nested(self, words: Sequence[Word], env: dict[str, str]) -> list[Command]:
        """The commands inside a quoted word: `sh -c "…"`, `ssh HOST "docker run …"`."""
        nested = next((word.text for word in words if self._holds_command(word)), None)
        if nested is None:
            return []
        inner, _ = self.script(nested)
        before = _assignments(words)
        return [replace(_elsewhere(each), env={**env, **before, **each.env}) for each in inner]

    def _holds_command(self, word: Word) -> bool:
        if not word.quoted or " " not in word.text:
            return False
        commands = split(word.text).commands
        inner = [each for command in commands for each in command]
        return self._started(inner) is not None or any(map(_runs_container, commands))

    def _loose_flags(self, words: Sequence[Word], env: dict[str, str]) -> list[Command]:
        """Flags without a command: the engine whose table knows most of them."""
        flags = [word.text.partition("=")[0] for word in words if word.text.startswith("--")]
        if not words or not words[0].text.startswith("--"):
            return []
        best, most = None, 0
        for engine in self.engines:
            table = self.table(engine)
            if table is None or not engine.serves:
                continue
            known = sum(table.flag(flag) is not None for flag in flags)
            if known > most:
                best, most = engine, known
        if best is None:
            return []
        given, rest = options(words, self.table(best))
        return [
            Command(
                engine=best,
                options=given,
                positionals=tuple(word.text for word in rest),
                env=env,
                fragment=True,
                placed=Placed(positionals=tuple(word.at for word in rest)),
            )
        ]

    def _command(
        self, started: Started, words: Sequence[Word], begin: int, env: dict[str, str]
    ) -> Command:
        """The command of a start; what stands between `begin` and its entry is its variables."""
        entry = started.entry
        given, rest = options(words[started.after :], self.table(entry.engine))
        return Command(
            engine=entry.engine,
            entry=entry.text,
            launcher=entry.launcher,
            legacy=entry.legacy,
            takes_module=entry.words[0] == "-m" and _is_run_by_another(words, started.first),
            options=given,
            positionals=tuple(word.text for word in rest),
            env={**env, **_assignments(words[begin : started.first])},
            placed=Placed(
                entry=_from_to(words[started.first : started.after]),
                env=_places(words[begin : started.first]),
                positionals=tuple(word.at for word in rest),
            ),
        )

    def arguments(
        self,
        engine: CommandEngineFacts,
        words: Sequence[Word],
        env: dict[str, str],
        container: Container | None = None,
    ) -> Command:
        """The command of an engine whose entry an image or a file implies."""
        if words and words[0].text == engine.entries[0].split()[-1]:
            # The image's entry point already ends with this word.
            words = words[1:]
        given, rest = options(words, self.table(engine))
        return Command(
            engine=engine,
            entry=engine.entries[0],
            options=given,
            positionals=tuple(word.text for word in rest),
            env=env,
            container=container,
            placed=Placed(positionals=tuple(word.at for word in rest)),
        )

    # --- where an engine starts ------------------------------------------------------------------

    def _started(self, words: Sequence[Word], start: int = 0) -> Started | None:
        """The first start of an engine from a word on."""
        for index in range(start, len(words)):
            text = words[index].text
            name = PurePosixPath(text).name.removesuffix(".exe")
            found = self._entries.get(text) or self._entries.get(name)
            for entry in found or ():
                wanted = entry.words[1:]
                have = words[index + 1 : index + 1 + len(wanted)]
                if [word.text for word in have] != list(wanted):
                    continue
                module = entry.words[0] == "-m"
                first = index - 1 if module and index and _is_python(words[index - 1]) else index
                return Started(entry, first, index + len(entry.words))
        return None

    # --- containers ------------------------------------------------------------------------------

    def image(self, name: str) -> tuple[CommandEngineFacts | None, ImageFacts | None]:
        """The engine an image is of, and what is known of the image."""
        lower = name.lower()
        for engine in self.engines:
            for facts in engine.images:
                if fnmatch.fnmatchcase(lower, facts.pattern):
                    return engine, facts
        return None, None

    def _contained(self, words: Sequence[Word], env: dict[str, str]) -> list[Command]:
        given, rest = options(words, self.tables["docker"], stop_at_positional=True)
        if not rest:
            return []
        variables = {**env, **_container_env(given, env)}
        container = _docker(given, rest[0].text)
        return [
            replace(each, placed=replace(each.placed, image=rest[0].at))
            for each in self.inside(container, list(rest[1:]), variables)
        ]

    def inside(self, container: Container, words: list[Word], env: dict[str, str]) -> list[Command]:
        """The commands that a container with these arguments runs."""
        engine, facts = self.image(container.image or "")
        container = replace(container, image_facts=facts)
        # `sh -c "…"` and nested entries first; bare arguments go to the image's own server.
        inner = self.read(words, env) if self._has_entry(words) else []
        if inner:
            again = _named_again(container, words, inner[0].entry)
            return [replace(each, container=container, repeated=again) for each in inner]
        if engine is None:
            # An image of one's own: its arguments tell whose they are.
            return [
                replace(each, container=container, fragment=False)
                for each in self._loose_flags(_from_first_flag(words), env)
            ]
        command = self.arguments(engine, words, env, container)
        last = engine.entries[0].split()[-1]
        again = _named_again(container, words, last) if words and words[0].text == last else None
        return [replace(command, repeated=again)]

    def _has_entry(self, words: Sequence[Word]) -> bool:
        return self._started(words) is not None or any(map(self._holds_command, words))


def _named_again(container: Container, words: Sequence[Word], entry: str) -> str | None:
    """The words that name the program once more, where the image's own entry point already runs it
    and nothing replaces that; None where all is well.
    """
    facts = container.image_facts
    if facts is None or not facts.entry or container.entry_replaced:
        return None
    return None if not words or is_flag(words[0].text) else entry


def _entries_of(engine: CommandEngineFacts) -> list[Entry]:
    return [
        *(Entry(engine, text) for text in engine.entries),
        *(Entry(engine, text, legacy=True) for text in engine.legacy_entries),
        *(Entry(engine, text, launcher=name) for text, name in engine.launchers.items()),
    ]


def _from_first_flag(words: Sequence[Word]) -> Sequence[Word]:
    first = next((index for index, word in enumerate(words) if is_flag(word.text)), len(words))
    return words[first:]


def _is_python(word: Word) -> bool:
    return _PYTHON.fullmatch(PurePosixPath(word.text).name or "") is not None


def _is_run_by_another(words: Sequence[Word], at: int) -> bool:
    """Whether a module that begins at `at` is handed to a program other than Python."""
    return at > 0 and not _is_python(words[at]) and not ASSIGNMENT.fullmatch(words[at - 1].text)


def _container_start(words: Sequence[Word]) -> int:
    """The index after `docker run`, or 0."""
    for index in range(len(words) - 1):
        name = PurePosixPath(words[index].text).name
        if name not in _RUNTIMES:
            continue
        after = [word.text for word in words[index + 1 : index + 3]]
        if after[:1] in (["run"], ["create"]):
            return index + 2
        if after == ["container", "run"]:
            return index + 3
    return 0


def _runs_container(words: Sequence[Word]) -> bool:
    return _container_start(words) > 0


def _elsewhere(command: Command) -> Command:
    """A command read out of a word: its places are not those of the text around."""
    return replace(
        command,
        options=tuple(replace(each, at=None) for each in command.options),
        placed=Placed(),
    )


def _from_to(words: Sequence[Word]) -> Span | None:
    first, last = words[0].at, words[-1].at
    return None if first is None or last is None else (first[0], last[1])


def _places(words: Sequence[Word]) -> dict[str, Span]:
    """Where variables are assigned before a command."""
    return {
        word.text.partition("=")[0]: word.at
        for word in words
        if word.at is not None and ASSIGNMENT.fullmatch(word.text)
    }


def _assignments(words: Sequence[Word]) -> dict[str, str]:
    found = {}
    for word in words:
        # `--env=A=b`, as programs that start pods and containers take it.
        if match := ASSIGNMENT.fullmatch(word.text.removeprefix("--env=")):
            found[match[1]] = match[2]
    return found


def _remember(
    words: Sequence[Word], scope: dict[str, str], arrays: dict[str, tuple[Word, ...]]
) -> set[str]:
    """Take over the assignments of `A=b`, `export A=b` and `ARGS=(…)`; the names exported."""
    exports = any(word.text == "export" for word in words)
    rest = [word for word in words if word.text not in ("export", "declare", "-x", "readonly")]
    if not rest or not all(ASSIGNMENT.fullmatch(word.text) for word in rest):
        return set()
    names = set()
    for word in rest:
        name, _, value = word.text.partition("=")
        names.add(name)
        if word.items is not None:
            arrays[name] = tuple(expand(word.items, scope, arrays))
        else:
            scope[name] = value
    return names & scope.keys() if exports else set()


def expand(
    words: Sequence[Word], scope: Mapping[str, str], arrays: Mapping[str, tuple[Word, ...]]
) -> list[Word]:
    """Words with the variables that the text itself assigns put in; others stay as written."""
    out: list[Word] = []
    for word in words:
        array = _ARRAY.fullmatch(word.text)
        if array and array[1] in arrays:
            out += arrays[array[1]]
            continue
        filled = _VARIABLE.sub(lambda match: _value(match, scope), word.text)
        if len(filled) > _LONGEST_WORD:
            # `A=$A$A`, many times over: no command is that long.
            filled = word.text
        if (
            filled != word.text
            and not word.quoted
            and " " in filled
            and (_VARIABLE.fullmatch(word.text))
        ):
            out += [
                replace(inner, at=None) for command in split(filled).commands for inner in command
            ]
        else:
            out.append(replace(word, text=filled))
    return out


def _value(match: re.Match[str], scope: Mapping[str, str]) -> str:
    name = match[1] or match[3]
    if name in scope:
        return scope[name]
    return match[2] if match[2] is not None else match[0]


def _container_env(given: Sequence[Option], outside: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for option in given:
        if option.name == "--env" and option.value:
            name, equals, value = option.value.partition("=")
            found[name] = value if equals else outside.get(name, f"${name}")
    return found


def _docker(given: Sequence[Option], image: str) -> Container:
    values: dict[str, list[str]] = {}
    for option in given:
        values.setdefault(option.name, []).append(option.text or "")
    network = _last(values, "--network", "--net")
    mounts = [mount(text) for text in values.get("--volume", [])]
    mounts += [_long_mount(text) for text in values.get("--mount", [])]
    return Container(
        form="docker",
        image=image,
        options=tuple(given),
        mounts=tuple(each for each in mounts if each is not None),
        devices=(
            *values.get("--device", []),
            *(name for name in ("--gpus",) if name in values),
            *(f"--runtime={each}" for each in values.get("--runtime", [])),
        ),
        groups=tuple(values.get("--group-add", [])),
        ports=tuple(values.get("--publish", [])),
        network=network,
        ipc=_last(values, "--ipc"),
        shm_bytes=size(_last(values, "--shm-size")),
        privileged=values.get("--privileged", ["false"])[-1] == "true",
        entry_replaced="--entrypoint" in values,
    )


def _last(values: Mapping[str, list[str]], *names: str) -> str | None:
    """The last value given under one of the names."""
    return next((values[name][-1] for name in names if values.get(name)), None)


def mount(text: str) -> tuple[str, str] | None:
    """Outside and inside of `-v a:b[:ro]`; None for an anonymous volume."""
    parts = text.split(":")
    return (parts[0], parts[1]) if len(parts) > 1 else None


def _long_mount(text: str) -> tuple[str, str] | None:
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    inside = parts.get("target") or parts.get("dst") or parts.get("destination")
    outside = parts.get("source") or parts.get("src")
    return (outside, inside) if outside and inside else None


def size(text: str | None) -> int | None:
    """Bytes of a container's size (`16g`, `64GB`, `10.24gb`); None for none or another form,
    also for one that only looks like a number (`1.2.3g`).
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*([\d.]+)\s*([bkmgt]?)i?b?\s*", text.lower())
    if match is None:
        return None
    try:
        return parse_bytes(f"{match[1]} {_SHM_UNITS[match[2] or 'b']}")
    except ValueError:
        return None
