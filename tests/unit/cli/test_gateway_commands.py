"""`heavylift keys` and `heavylift usage`: what the commands print."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from heavylift.cli.gateway import command as gateway
from heavylift.cli.keys import command as keys
from heavylift.cli.usage import command as usage
from heavylift.errors import HeavyliftError
from heavylift.gateway.ledger import Reservation, open_ledger
from heavylift.gateway.quota import Bound, Cost
from heavylift.gateway.store import open_store


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A gateway's folder in which two keys of a team were used once each."""
    with open_store(tmp_path) as store:
        for name in ("alice", "bob"):
            store.create_key(name, now_epoch_s=0.0, team="lab")
        known = store.keys()

    async def spend() -> None:
        with open_ledger(tmp_path, epoch=lambda: 86_400.0 * 365) as ledger:
            for each, cost in zip(
                known,
                (
                    Cost(prompt_tokens=1200, completion_tokens=34),
                    Cost(prompt_tokens=5, completion_tokens=6, estimated=True),
                ),
                strict=True,
            ):
                given = await ledger.reserve(each, "m", Bound(prompt_tokens=2000, output_tokens=50))
                assert isinstance(given, Reservation)
                ledger.settle(given.id, cost)
            ledger.flush()

    asyncio.run(spend())
    return str(tmp_path)


def run_keys(*arguments: str) -> Result:
    """`heavylift keys …`."""
    return CliRunner().invoke(keys, list(arguments), catch_exceptions=False)


def run_usage(*arguments: str) -> Result:
    """`heavylift usage …`."""
    return CliRunner().invoke(usage, list(arguments), catch_exceptions=False)


def test_a_new_key_is_shown_once_with_a_warning(tmp_path: Path) -> None:
    """The key on standard output, the warning beside it."""
    result = run_keys("create", "carol", "--state", str(tmp_path))
    first, key = result.stdout.splitlines()
    assert first.startswith("key of carol (id ")
    assert key.startswith("hl_")
    assert result.stderr == "keep it now: it cannot be shown again\n"
    assert key not in run_keys("list", "--state", str(tmp_path)).stdout


def test_keys_are_listed_with_their_limits(tmp_path: Path) -> None:
    """One line per key, one for what limits it, within 80 columns."""
    state = ("--state", str(tmp_path))
    run_keys("create", "carol", "--tokens-per-day", "2000000", "--team", "lab", *state)
    run_keys("create", "boss", "--admin", *state)
    with open_store(tmp_path) as store:
        store.create_key("dave", now_epoch_s=0.0, expires_at=1.0)
    run_keys("revoke", "boss", *state)
    lines = run_keys("list", *state).stdout.splitlines()
    assert [line.split()[1:] for line in lines if not line.startswith(" ")] == [
        ["live", "infer", "carol"],
        ["revoked", "admin", "boss"],
        ["expired", "infer", "dave"],
    ]
    assert lines[1].strip() == "team lab · 2,000,000 tokens/day"
    assert max(map(len, lines)) <= 80


def test_without_keys_there_is_a_next_step(tmp_path: Path) -> None:
    """The empty list says what to type."""
    run_keys("team", "lab", "--state", str(tmp_path))
    result = run_keys("list", "--state", str(tmp_path))
    assert result.stdout.splitlines() == ["no keys", "next: heavylift keys create NAME"]


def test_a_team_is_given_limits(tmp_path: Path) -> None:
    """They are those of its keys together."""
    result = run_keys("team", "lab", "--concurrent", "3", "--state", str(tmp_path))
    assert result.stderr == "limits of team lab set\n"
    run_keys("create", "carol", "--team", "lab", "--state", str(tmp_path))
    with open_store(tmp_path) as store:
        assert store.keys()[0].team_limits.concurrent == 3


@pytest.mark.parametrize("value", ["5", "d", "1.5h", "-1d", "3w"])
def test_a_duration_has_a_whole_number_and_a_unit(tmp_path: Path, value: str) -> None:
    """Anything else is a usage error."""
    result = run_keys("create", "carol", "--expires", value, "--state", str(tmp_path))
    assert result.exit_code == 2


def test_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    """With the command that lists the known ones."""
    run_keys("create", "carol", "--state", str(tmp_path))
    with pytest.raises(HeavyliftError, match="GW012") as raised:
        run_keys("rotate", "nobody", "--state", str(tmp_path))
    assert raised.value.hint_command == "heavylift keys list"


def test_usage_is_a_table(folder: str) -> None:
    """Right-aligned figures within 80 columns, and a word on what is estimated."""
    lines = run_usage("--state", folder).stdout.splitlines()
    assert max(map(len, lines[:3])) <= 80
    figures = sorted(tuple(line.split()[1:]) for line in lines[1:3])
    assert figures == [("alice", "1", "1,200", "34", "0"), ("bob", "1", "5", "6", "1")]
    assert lines[3].startswith("estimated: ")


@pytest.mark.parametrize(
    ("by", "group"), [("team", {"team": "lab"}), ("day", {"day": "1971-01-01"})]
)
def test_usage_is_summed_up(folder: str, by: str, group: dict[str, str]) -> None:
    """By team or by UTC day."""
    rows = json.loads(run_usage("--by", by, "--state", folder, "--json").stdout)
    sums = {"requests": 2, "prompt_tokens": 1205, "completion_tokens": 40}
    assert rows == [group | sums | {"cached_tokens": 0, "estimated": 1}]


def test_usage_begins_where_it_is_asked_to(folder: str) -> None:
    """From the day named, that day included."""
    assert (
        len(json.loads(run_usage("--since", "1971-01-01", "--state", folder, "--json").stdout)) == 2
    )
    assert run_usage("--since", "1971-01-02", "--state", folder).stdout == "nothing was used\n"


def test_usage_is_a_csv_file(folder: str) -> None:
    """With a header, for spreadsheets."""
    rows = list(csv.DictReader(io.StringIO(run_usage("--csv", "--state", folder).stdout)))
    assert {row["name"]: row["prompt_tokens"] for row in rows} == {"alice": "1200", "bob": "5"}


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    """Half a TLS setting is a usage error, not plain HTTP."""
    result = CliRunner().invoke(
        gateway, ["--upstream", "http://127.0.0.1:1", "--tls-cert", str(tmp_path / "c")]
    )
    assert result.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "carol", "--expires", "9" * 30 + "d"),
        ("create", "carol", "--expires", "0d"),
        ("rotate", "carol", "--grace", "36526d"),
        ("create", "carol", "--tokens-per-day", "1.0000001M"),
        ("create", "carol", "--tokens-per-day", "9" * 30),
        ("create", "carol", "--concurrent", "-1"),
    ],
)
def test_a_number_nobody_means_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As a usage error, before anything is written."""
    assert run_keys(*arguments, "--state", str(tmp_path)).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_limits_are_written_as_volumes_are(tmp_path: Path) -> None:
    """20M is twenty million here as for `decide`; nothing at all may be allowed too."""
    state = ("--state", str(tmp_path))
    run_keys("create", "carol", "--tokens-per-day", "20M", "--concurrent", "0", *state)
    with open_store(tmp_path) as store:
        limits = store.keys()[0].limits
    assert (limits.tokens_per_day, limits.concurrent) == (20_000_000, 0)


def test_a_live_name_is_given_once(tmp_path: Path) -> None:
    """With the way to a new secret; a revoked or expired key frees its name."""
    state = ("--state", str(tmp_path))
    with open_store(tmp_path) as store:
        store.create_key("carol", now_epoch_s=0.0, expires_at=1.0)
    assert run_keys("create", "carol", *state).exit_code == 0
    with pytest.raises(HeavyliftError, match="GW015") as raised:
        run_keys("create", "carol", *state)
    taken = raised.value.params["id"]
    assert raised.value.hint_command == f"heavylift keys rotate {taken}"
    run_keys("revoke", str(taken), *state)
    assert run_keys("create", "carol", *state).exit_code == 0


@pytest.mark.parametrize(
    ("run", "arguments"),
    [
        (run_keys, ("list",)),
        (run_keys, ("revoke", "x")),
        (run_keys, ("rotate", "x")),
        (run_usage, ()),
    ],
)
def test_looking_makes_no_state(
    tmp_path: Path, run: Callable[..., Result], arguments: tuple[str, ...]
) -> None:
    """Where no gateway ever was, that is said and nothing is left behind."""
    folder = tmp_path / "nowhere"
    with pytest.raises(HeavyliftError, match="GW014"):
        run(*arguments, "--state", str(folder))
    assert not folder.exists()


def test_usage_has_one_format(folder: str) -> None:
    """JSON or a table of commas, not a guess between them."""
    assert run_usage("--json", "--csv", "--state", folder).exit_code == 2


def test_a_host_of_another_machine_is_named(tmp_path: Path) -> None:
    """The port has nothing to do with it. Workers that are dead by then have been named too."""
    out = CliRunner(catch_exceptions=True).invoke(
        gateway,
        ["--upstream", "http://127.0.0.1:9", "--host", "999.1.1.1", "--state", str(tmp_path)],
    )
    assert isinstance(out.exception, HeavyliftError)
    assert (out.exception.code, out.exception.params) == ("GW004", {"host": "999.1.1.1"})
    assert "worker http://127.0.0.1:9 does not answer (no connection" in out.stderr


@pytest.mark.parametrize(("key", "code"), [("key.pem", "GW007"), ("absent.pem", "GW003")])
def test_tls_files_that_are_none_are_named(tmp_path: Path, key: str, code: str) -> None:
    """What is wrong with them in words, not those of the TLS library."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no certificate")
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / key))
    out = CliRunner(catch_exceptions=True).invoke(
        gateway,
        ["--upstream", "http://127.0.0.1:9", "--port", "0", "--state", str(tmp_path), *files],
    )
    assert isinstance(out.exception, HeavyliftError)
    assert out.exception.code == code
    assert str(tmp_path / key) in out.exception.params.values()
