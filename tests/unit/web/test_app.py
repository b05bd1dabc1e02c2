"""The pages as they are answered, without a browser."""

from __future__ import annotations

import html
import json
import re
import shlex
import sqlite3
from pathlib import Path

import msgspec
import pytest
from tests.unit.web.conftest import Site

from heavylift.cli.main import main
from heavylift.web.serve import Settings

COMMAND = "plan kimi-k3 --on 8xMI355X --engine atom --context 1M --text-only"
K3 = "model=kimi-k3&on=8xMI355X&engine=atom&context=1M&text-only=1"


def words(text: str) -> str:
    """The text of a page without its tags, spaces made one."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def test_the_planner_shows_the_plan_of_its_address(site: Site) -> None:
    """K3 on eight MI355X: the verdict, the weights of a rank, the command of the same."""
    shown = words(site.get(f"/?{K3}").text)
    assert "Fits" in shown
    assert "190.97" in shown
    assert f"heavylift {COMMAND}" in shown
    assert "Room for up to 5 sequences" in shown


def test_an_address_that_says_nothing_shows_the_showcase(site: Site) -> None:
    """The first visit has a plan on it."""
    assert "Kimi-K3" in words(site.get("/").text)


def test_the_record_of_a_part_is_the_one_the_command_writes(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's JSON and `--json` are the same document, but for fixes that come by themselves."""
    with pytest.raises(SystemExit):
        main(shlex.split(f"{COMMAND} --json"))
    command = json.loads(capsys.readouterr().out)
    page = site.get(f"/api/plan?{K3}").json
    assert {**page, "fixes": []} == {**command, "fixes": []}


def test_fixes_are_links_to_their_plans(site: Site) -> None:
    """Every nearest change is an address whose plan fits better."""
    part, whole = site.ask("/part/fixes?on=8xB200", "/?on=8xB200&full=1")
    links = re.findall(r'href="/\?([^"]+)"', part.text)
    assert links
    assert all(link in whole.text for link in links)
    verdicts = [
        json.loads(a.text)["verdict"]
        for a in site.ask(*(f"/api/plan?{html.unescape(q)}" for q in links))
    ]
    assert "fits" in verdicts
    assert "does_not_fit" not in verdicts


@pytest.mark.parametrize("part", ["plan", "speed", "fixes", "cost", "recipe"])
@pytest.mark.parametrize(
    "query", ["on=8xB200&tp=7", "context=many", "on=9xNothing", "model=%2Fetc%2Fpasswd", "rent=-1"]
)
def test_what_cannot_be_planned_is_said_in_words(site: Site, part: str, query: str) -> None:
    """A part answers with the error's sentence and code; its JSON with status 422."""
    shown, record = site.ask(f"/part/{part}?{query}", f"/api/{part}?{query}")
    code = record.json["error"]["code"]
    assert (shown.status, record.status) == (200, 422)
    assert code in shown.text
    assert "Traceback" not in shown.text


def test_an_address_of_nothing_we_know_opens_with_a_word_on_it(site: Site) -> None:
    """An old or broken link shows the start and says why."""
    answer = site.get("/?model=no-such-model")
    assert answer.status == 200
    assert "FACT010" in answer.text


@pytest.mark.parametrize(("rack", "count"), [("B300", 8), ("2x8xH200", 16), ("5x8xB200", 40)])
def test_the_rack_that_is_planned_is_the_one_chosen_in_the_form(
    site: Site, rack: str, count: int
) -> None:
    """However it was written, and also where nobody sells that count: the next change keeps it."""
    page = site.get(f"/?on={rack}").text
    assert re.search(rf'<option value="{count}" selected>', page)


def test_a_form_sent_without_a_script_is_understood(site: Site) -> None:
    """Card and count come as two fields then, and everything comes at once."""
    shown = words(site.get("/?model=kimi-k3&gpu=B200&gpus=8&engine=&context=32k&full=1").text)
    assert "Does not fit" in shown
    assert "Nearest changes" in shown


def test_the_reader_chooses_the_language(site: Site) -> None:
    """By the browser's wish, or by a link that is kept as a cookie and leaves no trace in the
    address.
    """
    assert 'lang="zh-Hans"' in site.get("/", Accept_Language="zh-CN,en;q=0.5").text
    moved = site.get(f"/?{K3}&lang=zh-TW")
    assert (moved.status, moved.headers["Location"]) == (303, f"/?{K3}")
    assert "HttpOnly" in moved.headers["Set-Cookie"]
    assert "SameSite=Strict" in moved.headers["Set-Cookie"]
    cookie = moved.headers["Set-Cookie"].partition(";")[0]
    assert 'lang="zh-Hant"' in site.get("/", Cookie=cookie, Accept_Language="en").text


def test_a_page_speaks_one_language(site: Site) -> None:
    """What is said around the figures is in the language chosen: verdict, segments, headings."""
    english, hans, hant = (
        words(site.get(f"/?{K3}", Accept_Language=tag).text) for tag in ("en", "zh-CN", "zh-TW")
    )
    assert "Recurrent state" in english
    assert "循环状态" in hans
    assert "遞迴狀態" in hant
    for shown in (hans, hant):
        assert not re.search(r"\b(Verdict|Weights|Headroom|Budget|Speed|Cost|Remarks)\b", shown)


def test_a_strangers_words_are_shown_and_not_run(site: Site) -> None:
    """What stands in an address is text on the page."""
    answer = site.get("/part/plan?engine=%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text


def report(path: Path, stages: list[dict[str, object]]) -> Path:
    """A report of `bench` with what the page reads of it."""
    path.write_text(json.dumps({"stages": stages}))
    return path


STAGE: dict[str, object] = {
    "load": {"kind": "closed", "concurrency": 16},
    "valid": True,
    "output_tokens_per_s": 512.0,
    "tpot_s": {"p50": 0.025},
    "prompt_tokens_mean": 8192.0,
    "output_tokens_mean": 1024.0,
    "cached_share": 0.0,
}


def test_measured_points_are_drawn_and_narrow_the_band(home: Path) -> None:
    """A report of the user's own is on the chart, and the forecast rests on it."""
    path = report(home / "report.json", [STAGE, {**STAGE, "valid": False}])
    site = Site(Settings(port=0, gateway=home / "gateway", reports=(path,)))
    shown = site.get("/part/speed?on=8xB300").text
    assert shown.count('class="dot"') == 2  # the point and its legend
    assert "16: 512" in shown
    assert "Rests on your own measurement" in shown


@pytest.mark.parametrize(
    "content", ["", "[]", '{"stages": []}', json.dumps({"stages": [{**STAGE, "valid": False}]})]
)
def test_a_report_without_points_is_refused_at_the_start(home: Path, content: str) -> None:
    """Nobody looks in vain for points that are not there."""
    path = home / "report.json"
    path.write_text(content)
    with pytest.raises(Exception, match="WEB003"):
        Site(Settings(port=0, gateway=home / "gateway", reports=(path,))).get("/")


def test_a_simulation_runs_when_it_is_asked_for(site: Site) -> None:
    """Three runs, slow to fast; a goal that is none is said so."""
    answer, refused = site.ask(
        "/api/simulate?on=8xB300&concurrency=4&isl=1k&osl=64", "/api/simulate?on=8xB300&slo=fast"
    )
    rates = [run["output_tokens_per_s"] for run in answer.json["runs"]]
    assert rates == sorted(rates)
    assert len(rates) == 3
    assert refused.json["error"]["code"] == "USE060"


def test_other_racks_are_compared(site: Site) -> None:
    """A row per card with the address of its plan."""
    shown = site.get("/part/compare?on=8xB200").text
    assert len(re.findall(r"<tr[ >]", shown)) > 5
    assert "Does not fit" in words(shown)
    assert "/?model=kimi-k3&amp;on=8xB300" in shown


def test_looking_makes_no_file(site: Site, home: Path) -> None:
    """The pages only read: a machine without deployments has none after a look either."""
    answer = site.get("/live")
    assert answer.status == 200
    assert not (home / "home").exists()


def test_a_port_that_is_taken_is_named(home: Path) -> None:
    """Two sites do not share a port."""
    import asyncio  # noqa: PLC0415

    from heavylift.web.serve import running  # noqa: PLC0415

    async def twice() -> None:
        async with (
            running(Settings(port=0, gateway=home)) as port,
            running(Settings(port=port, gateway=home)),
        ):
            pass

    with pytest.raises(Exception, match="WEB002"):
        asyncio.run(twice())


def test_a_store_that_cannot_be_read_is_said_so(home: Path) -> None:
    """A database of a newer version: the page stands and names the error."""
    folder = home / "home" / "state"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "deployments.db") as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    answer = Site(Settings(port=0, gateway=home / "gateway")).get("/part/live")
    assert answer.status == 200
    assert re.search(r"STA\d{3}", answer.text)


def test_the_record_of_the_live_page_is_json(site: Site) -> None:
    """Programs read the same look."""
    found = msgspec.json.decode(site.get("/api/live").text)
    assert found["deployments"] == []
