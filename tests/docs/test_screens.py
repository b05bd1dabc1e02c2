"""Lines that a page shows: found again in another language's screen, and in today's."""

from __future__ import annotations

import pytest
from tests.docs import screens

ENGLISH = """\
FITS  (verified 2026-08-21)
Kimi-K3 · MXFP4 experts, bf16 rest · 8 × MI355X · vLLM 0.29.0 · tp8

Per GPU, worst rank                                        GiB  kind
  █ weights           497,220 tensors                   191.81  exact
  ▓ kv_cache          13,824 B per token                 13.50  derived

! Machines with several networks may meet on the wrong one: set
  NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that joins them.
! It loads; that is no proof of traffic.
next: heavylift explain weights
""".splitlines()
CHINESE = """\
放得下  (已验证 2026-08-21)
Kimi-K3 · MXFP4 专家，其余 bf16 · 8 × MI355X · vLLM 0.29.0 · tp8

单卡，最重的 rank                                          GiB  类型
  █ weights           497,220 张量                      191.81  精确
  ▓ kv_cache          每 token 13,824 B                  13.50  推导

! 有多个网络的机器可能在错误的网络上会合：把 NCCL_SOCKET_IFNAME 和
  GLOO_SOCKET_IFNAME 设为连接它们的网卡。
! 能加载；不证明能承受流量。
下一步：heavylift explain weights
""".splitlines()


def test_an_output_that_differs_is_noticed() -> None:
    """Lines in another order, missing, more, or with other numbers are not what was shown."""
    shown = ["a", "…", "b … d"]
    assert screens.shows(shown, ["a", "x", "b c d"])
    for told in (["b c d", "a"], ["a", "b c"], ["a", "b c d", "more"]):
        assert not screens.shows(shown, told)


def test_the_same_lines_are_shown_in_another_language() -> None:
    """A wrapped sentence whole, a row as it stands, `…` for the same figures, gaps as they are."""
    shown = [
        "FITS  (verified 2026-08-21)",
        "Kimi-K3 · MXFP4 experts, bf16 rest · 8 × MI355X · vLLM … · tp8",
        "…",
        "  █ weights           497,220 tensors                   191.81  exact",
        "…",
        "! Machines with several networks may meet on the wrong one: set",
        "  NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that joins them.",
        "…",
    ]
    told = screens.translated(shown, ENGLISH, CHINESE, "zh-Hans")
    assert told == [
        "放得下  (已验证 2026-08-21)",
        "Kimi-K3 · MXFP4 专家，其余 bf16 · 8 × MI355X · vLLM … · tp8",
        "…",
        "  █ weights           497,220 张量                      191.81  精确",
        "…",
        "! 有多个网络的机器可能在错误的网络上会合：把 NCCL_SOCKET_IFNAME 和",
        "  GLOO_SOCKET_IFNAME 设为连接它们的网卡。",
        "…",
    ]
    assert screens.shows(told, CHINESE)


def test_a_screen_that_is_shown_whole_is_shown_whole() -> None:
    """Also where nothing of it is alike."""
    assert screens.translated(ENGLISH, ENGLISH, CHINESE, "zh-Hans") == CHINESE
    assert screens.translated(["…"], ENGLISH, CHINESE, "zh-Hans") == ["…"]
    assert screens.refreshed(ENGLISH, ["other"]) == ["other"]


def test_a_step_is_found_by_what_it_says() -> None:
    """Steps have neither names nor figures, and another run may have more of them."""
    english = ["· process started", "· API listening", "· ready: the model answered"]
    chinese = ["· 进程已启动", "· 正在加载权重", "· API 已监听", "· 就绪：模型已作答"]
    shown = ["…", "· ready: the model answered"]
    told = screens.translated(shown, english, chinese, "zh-Hans")
    assert told == ["…", "· 就绪：模型已作答"]


def test_what_differs_from_run_to_run_is_not_shown() -> None:
    """Times and folders; a line that only one run has."""
    first = ["ready after 0.6 s", "log", "/home/a1/x.log", "only here: 9999"]
    second = ["ready after 1.8 s", "log", "/home/b2/x.log"]
    assert screens.steady(first, second) == ["ready after … s", "log", "…", "…"]


def test_a_page_follows_the_screen_of_today() -> None:
    """A line with another word keeps its `…`; one that is right stays as it is."""
    shown = ["FITS  (verified …)", "…", "  █ weights   1 tensors  191.81  exact", "…"]
    told = screens.refreshed(shown, ENGLISH)
    assert told == [
        "FITS  (verified …)",
        "…",
        "  █ weights           497,220 tensors                   191.81  exact",
        "…",
    ]


def test_a_line_without_a_counterpart_is_told() -> None:
    """Nothing is shown in its place."""
    with pytest.raises(screens.UnlikeError):
        screens.refreshed(["something else entirely", "…"], ["A", "B"])
    with pytest.raises(screens.UnlikeError):
        screens.translated(["not of this output", "…"], ENGLISH, CHINESE, "zh-Hans")
