"""How often the right cause is named, on lines of real failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from heavylift.devserver.healthy_log import ENGINES, healthy_lines
from heavylift.records.diagnosis import Diagnosis

Diagnosed = Callable[[tuple[str, ...]], Diagnosis]


def _shares(cases: Sequence[Any], diagnosed: Diagnosed) -> tuple[float, float]:
    """How often the right class comes first, and among the first three."""
    first = third = 0
    for case in cases:
        named = [cause.cause_class for cause in diagnosed(case.lines).causes]
        first += named[:1] == [case.cause_class]
        third += case.cause_class in named[:3]
    return first / len(cases), third / len(cases)


def test_the_right_cause_comes_first(own: Sequence[Any], diagnosed: Diagnosed) -> None:
    """Nine of ten failing logs are answered with the right class, nearly all within three."""
    first, third = _shares(own, diagnosed)
    assert first >= 0.90
    assert third >= 0.97


@pytest.mark.shared
def test_the_right_cause_comes_first_in_the_reference_cases(
    shared: Sequence[Any], diagnosed: Diagnosed
) -> None:
    """The same on the reference cases as they are."""
    first, third = _shares(shared, diagnosed)
    assert first >= 0.90
    assert third >= 0.97


def test_a_long_log_with_consequences_changes_no_answer(
    own: Sequence[Any],
    diagnosed: Diagnosed,
    spliced: Callable[[Any], tuple[str, ...]],
) -> None:
    """A recognised cause stays first inside 20,000 healthy lines and between consequences."""
    changed = []
    recognised = 0
    for case in own:
        alone = diagnosed(case.lines)
        if not alone.recognised:
            continue
        recognised += 1
        inside = diagnosed(spliced(case))
        if inside.causes[0].cause_class != alone.causes[0].cause_class:
            changed.append(case.id)
    assert changed == []
    assert recognised >= 0.9 * len(own)


def test_the_evidence_is_the_line_of_the_long_log(
    own: Sequence[Any],
    diagnosed: Diagnosed,
    spliced: Callable[[Any], tuple[str, ...]],
) -> None:
    """The number of the evidence leads to the very line in the log it was found in."""
    for case in own[::10]:
        lines = spliced(case)
        for cause in diagnosed(lines).causes:
            assert cause.evidence.line in lines[cause.evidence.number - 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_healthy_log_has_no_cause(engine: str, diagnosed: Diagnosed) -> None:
    """Nothing is recognised in a log of a start and of serving that went well."""
    for seed in range(3):
        diagnosis = diagnosed(tuple(healthy_lines(engine, 5_000, seed)))
        assert not diagnosis.recognised
        assert diagnosis.root is None


def test_every_class_has_a_pattern_that_is_seen_to_work(
    own: Sequence[Any], diagnosed: Diagnosed
) -> None:
    """The classes of our cases are nearly all of those that have symptoms."""
    named = {
        diagnosed(case.lines).causes[0].cause_class for case in own if diagnosed(case.lines).causes
    }
    assert len(named) >= 50


REPORTS = (
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
    "|                                         |                        |               MIG M. |",
    "|   0  NVIDIA H200                    On  |   00000000:0A:00.0 Off |                    0 |",
    "    MIG Mode",
    "        Current                           : Disabled",
    "    GPU Recovery Action                   : None",
    "    ECC Errors",
    "        Volatile",
    "            SRAM Uncorrectable Parity     : 0",
    "            DRAM Uncorrectable            : 0",
    "    Double Bit ECC                        : N/A",
    "ecc.mode.current, ecc.errors.uncorrected.volatile.total, mig.mode.current",
    "GPU 0: NVIDIA H200 (UUID: GPU-7f57f032-34ab-a064-c37c-7a4f75601cc5)",
    "NVML: Unable to retrieve NvLink information as all links are inActive",
    "gds_size_in_kb 0",
    "[    0.304008] iommu: Default domain type: Translated",
    "[    0.304009] DMAR: IOMMU enabled",
    "[    0.412345] pci 0000:0a:00.0: Adding to iommu group 12",
    "[    1.713992] pci 0000:00:15.0: BAR 13: no space for [io  size 0x1000]",
    "    Capabilities: [148 v1] Access Control Services",
    "    AtomicOpsCap: Routing- 32bit+ 64bit+ 128bitCAS-",
    "CUDA runtime version: 12.8.93",
    (
        "(Worker_TP0 pid=9) WARNING 08-22 10:00:00 [symm_mem.py:58] SymmMemCommunicator: Device "
        "capability 12.0 not supported, communicator is not available."
    ),
    (
        "(Worker_TP0 pid=9) WARNING 08-22 10:00:00 [custom_all_reduce.py:144] Custom allreduce is "
        "disabled because it's not supported on more than two PCIe-only GPUs."
    ),
    "[2026-08-22 10:00:20 TP0] Init torch distributed ends. mem usage=1.87 GB",
    "node1:77:913 [0] NCCL INFO NVLS multicast support is available on dev 0",
    "[aiter] finish build [module_rmsnorm], cost 36.7s",
    "Vulnerability Spectre v2: Mitigation; Enhanced IBRS",
)


def test_what_a_sound_machine_and_its_engines_say_is_no_cause(diagnosed: Diagnosed) -> None:
    """Job scripts print nvidia-smi, lspci and dmesg before the engine: names of columns, counts of
    zero, what every boot says and parts that an engine goes without accuse nobody, alone or
    before a healthy log.
    """
    for lines in (
        REPORTS,
        (*REPORTS, *healthy_lines("vllm", 2_000)),
        *((each,) for each in REPORTS),
    ):
        diagnosis = diagnosed(lines)
        assert not diagnosis.recognised, diagnosis.causes[0].evidence.line


def test_leftovers_of_a_failure_stand_beside_hints(diagnosed: Diagnosed) -> None:
    """A watchdog alone is a consequence; where only hints speak, the stalled rank is named too."""
    line = "[rank1]:[E1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X)"
    diagnosis = diagnosed((line,))
    assert not diagnosis.recognised
    assert "nccl_stalled_rank_or_interface" in [each.cause_class for each in diagnosis.causes]
