"""Statistics: closed forms, coverage of the intervals, and the same numbers as scipy's."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.quality import stats
from heavylift.stats import binomial_at_most, bootstrap, mean, median, quantile, rate_interval

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)
TABLES = st.builds(
    lambda both, ref, cand, neither: stats.Pairs(
        both=both, only_reference=ref, only_candidate=cand, neither=neither
    ),
    st.integers(1, 60),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)


def seeded(number: int) -> random.Random:
    """Chance that comes out the same every time."""
    return random.Random(number)


@pytest.fixture(scope="session")
def scipy_stats() -> Any:
    """scipy.stats, where it is installed."""
    return pytest.importorskip("scipy.stats")


@pytest.fixture(scope="session")
def multitest() -> Any:
    """Statsmodels' multiple tests, where it is installed."""
    return pytest.importorskip("statsmodels.stats.multitest")


@pytest.fixture(scope="session")
def numpy() -> Any:
    """numpy, where it is installed."""
    return pytest.importorskip("numpy")


def choose(n: int, k: int, p: float) -> float:
    """The probability of k successes."""
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


# --- quantiles -----------------------------------------------------------------------------------


@given(VALUES, st.floats(0, 1))
def test_a_quantile_lies_among_the_values_and_grows(values: list[float], share: float) -> None:
    """It is between the least and the greatest, and more of the share is no less of the value."""
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert ordered[0] <= found <= ordered[-1]
    assert quantile(ordered, 0) == ordered[0]
    assert quantile(ordered, 1) == ordered[-1]
    # Rounding of the interpolation may cost the last digit.
    assert quantile(ordered, share / 2) <= found + 1e-9 * max(1.0, abs(found))


def test_quantiles_are_those_of_the_usual_definition() -> None:
    """Hyndman and Fan's type 7 on five values."""
    assert median([1, 2, 3, 4]) == 2.5
    assert quantile([10, 20, 30, 40, 50], 0.9) == pytest.approx(46)
    with pytest.raises(ValueError, match=r"0\.5"):
        quantile([], 0.5)


# --- rates ---------------------------------------------------------------------------------------


@given(st.integers(1, 80), st.floats(0.001, 0.999), st.data())
def test_the_binomial_sum_is_the_sum_of_its_terms(
    trials: int, probability: float, data: st.DataObject
) -> None:
    """Against the terms written out."""
    most = data.draw(st.integers(0, trials))
    written = sum(choose(trials, k, probability) for k in range(most + 1))
    assert binomial_at_most(most, trials, probability) == pytest.approx(written, abs=1e-9)


@pytest.mark.parametrize("trials", [1, 4, 10, 30])
@pytest.mark.parametrize("true", [0.01, 0.1, 0.37, 0.5, 0.9, 0.999])
def test_a_rates_interval_covers_the_truth_at_least_as_often_as_it_says(
    trials: int, true: float
) -> None:
    """Coverage summed over all outcomes, not simulated."""
    covered = 0.0
    for successes in range(trials + 1):
        interval = rate_interval(successes, trials)
        if interval.low <= true <= interval.high:
            covered += choose(trials, successes, true)
    assert covered >= 0.95


def test_a_rates_interval_has_its_closed_forms() -> None:
    """All or none: 1 - (alpha/2)^(1/n); no trials: nothing is known."""
    none = rate_interval(0, 20)
    assert none.low == 0
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 20), abs=1e-12)
    every = rate_interval(20, 20)
    assert every.low == pytest.approx(0.025 ** (1 / 20))
    assert every.high == 1
    unknown = rate_interval(0, 0)
    assert (unknown.low, unknown.high) == (0, 1)


# --- bootstrap -----------------------------------------------------------------------------------


def test_the_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    """200 samples of 40 values; the nominal 95 % must be met within four standard errors."""
    source = seeded(7)
    covered = 0
    for _ in range(200):
        values = [source.gauss(3, 2) for _ in range(40)]
        interval = bootstrap(values, mean, source.random, resamples=300)
        covered += interval.low <= 3 <= interval.high
    assert covered / 200 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)


def test_clusters_are_resampled_whole() -> None:
    """Ten copies of each item narrow nothing: the interval is that of the items."""
    source = seeded(3)
    items = [source.gauss(0, 1) for _ in range(30)]
    once = bootstrap(items, mean, seeded(1).random)
    copied = bootstrap([(item,) * 10 for item in items], _mean_of_clusters, seeded(1).random)
    assert copied.low == pytest.approx(once.low)
    assert copied.high == pytest.approx(once.high)


def _mean_of_clusters(clusters: object) -> float:
    assert isinstance(clusters, list)
    return mean([value for cluster in clusters for value in cluster])


# --- pairs ---------------------------------------------------------------------------------------


@given(TABLES)
def test_mcnemar_is_symmetric_and_a_probability(table: stats.Pairs) -> None:
    """Which side is called the reference does not matter; agreement is no evidence."""
    turned = stats.Pairs(
        both=table.both,
        only_reference=table.only_candidate,
        only_candidate=table.only_reference,
        neither=table.neither,
    )
    p_value = stats.mcnemar(table)
    assert 0 < p_value <= 1
    assert p_value == stats.mcnemar(turned)
    if table.only_reference == table.only_candidate:
        assert p_value == 1


def test_mcnemar_has_its_closed_form() -> None:
    """All of n differing items to one side: 2 · 2^-n; full agreement: 1."""
    table = stats.Pairs(both=5, only_reference=8, only_candidate=0, neither=2)
    assert stats.mcnemar(table) == pytest.approx(2 * 2**-8)
    agreeing = stats.Pairs(both=5, only_reference=0, only_candidate=0, neither=0)
    assert stats.mcnemar(agreeing) == 1


@given(TABLES)
def test_the_paired_interval_holds_the_difference_and_widens_with_confidence(
    table: stats.Pairs,
) -> None:
    """It holds what was seen, lies within [-1, 1], and 99 % is wider than 90 %."""
    wide, narrow = stats.paired_interval(table, 0.99), stats.paired_interval(table, 0.9)
    assert -1 <= wide.low <= narrow.low <= table.difference + 1e-9
    assert table.difference - 1e-9 <= narrow.high <= wide.high <= 1


@pytest.mark.parametrize(
    ("b", "c"), [(0.05, 0.05), (0.02, 0.10), (0.01, 0.01), (0.0, 0.05), (0.2, 0.1)]
)
def test_the_paired_interval_covers_the_truth(b: float, c: float) -> None:
    """Coverage of 95 % intervals over all tables of 40 items, weighted by their probability.

    The score interval is approximate: Tango reports coverage close to, not never below, 95 %.
    """
    items, covered = 40, 0.0
    for candidate in range(items + 1):
        for reference in range(items + 1 - candidate):
            rest = items - candidate - reference
            weight = (
                math.comb(items, candidate)
                * math.comb(items - candidate, reference)
                * b**candidate
                * c**reference
                * (1 - b - c) ** rest
            )
            if weight < 1e-9:
                continue
            table = stats.Pairs(
                both=rest, only_reference=reference, only_candidate=candidate, neither=0
            )
            interval = stats.paired_interval(table)
            covered += weight * (interval.low <= b - c <= interval.high)
    assert covered >= 0.93


def test_items_that_never_differ_leave_room_for_a_rare_difference() -> None:
    """The closed form of the score interval without a differing item: z² / (n + z²)."""
    table = stats.Pairs(both=60, only_reference=0, only_candidate=0, neither=40)
    interval = stats.paired_interval(table)
    z2 = 1.959963984540054**2
    assert interval.high == pytest.approx(z2 / (100 + z2), abs=1e-9)
    assert interval.low == pytest.approx(-interval.high)
    clustered = stats.clustered_interval([0.0] * 100, seeded(1).random)
    assert clustered.high == pytest.approx(interval.high)


# --- several tests, equivalence, power -----------------------------------------------------------


@given(P_VALUES)
def test_holm_keeps_the_order_and_never_lowers_a_value(values: list[float]) -> None:
    """Adjusted values are no less than the plain ones, at most 1, and in the same order."""
    adjusted = stats.holm(values)
    for plain, after in zip(values, adjusted, strict=True):
        assert plain <= after <= 1
    ranked = [after for _, after in sorted(zip(values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


def test_holm_has_the_values_of_its_definition() -> None:
    """Four p-values worked out by hand: multiplied by 4, 3, 2, 1, and never falling."""
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_the_detectable_effect_is_that_of_the_literature() -> None:
    """10 % differing items of 1000: 2.8 points at 80 % power, two-sided 5 %."""
    assert stats.minimum_detectable_effect(1000, 0.10) == pytest.approx(0.028, abs=0.0001)
    assert stats.minimum_detectable_effect(0, 0.1) == 1
    # Six items to one side are the fewest that the exact test calls a difference.
    assert stats.minimum_detectable_effect(300, 0.0) == 6 / 300
    five, six = (
        stats.Pairs(both=300 - n, only_reference=n, only_candidate=0, neither=0) for n in (5, 6)
    )
    assert stats.mcnemar(five) > 0.05 > stats.mcnemar(six)


def test_enough_items_for_equivalence_are_enough() -> None:
    """With as many agreeing items as it says, the 90 % interval lies inside the margin."""
    for margin in (0.02, 0.05, 0.1):
        needed = stats.items_for_equivalence(margin, 0.0)
        for items, enough in ((needed + 1, True), (needed - 2, False)):
            table = stats.Pairs(both=items, only_reference=0, only_candidate=0, neither=0)
            assert stats.is_equivalent(stats.paired_interval(table, 0.9), margin) is enough


def test_the_sign_flip_test_keeps_its_level_and_finds_a_shift() -> None:
    """Of 200 null samples about 5 % are called different; a clear shift is."""
    source = seeded(11)
    called = 0
    for _ in range(200):
        null = [source.choice((-0.5, 0.0, 0.5)) for _ in range(30)]
        called += stats.sign_flip(null, source.random, resamples=200) < 0.05
    assert called / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    shifted = [source.choice((0.0, 0.5, 0.5)) for _ in range(30)]
    assert stats.sign_flip(shifted, source.random) < 0.01
    assert stats.sign_flip([0.0] * 5, source.random) == 1


# --- against scipy, where it is installed --------------------------------------------------------


@given(table=TABLES)
def test_mcnemar_is_scipys_binomial_test(scipy_stats: Any, table: stats.Pairs) -> None:
    """The exact test is a binomial test on the differing items."""
    differing = table.only_reference + table.only_candidate
    if differing:
        expected = scipy_stats.binomtest(table.only_reference, differing, 0.5).pvalue
        assert stats.mcnemar(table) == pytest.approx(expected, rel=1e-9)


@given(trials=st.integers(1, 200), data=st.data())
def test_rate_intervals_are_scipys(scipy_stats: Any, trials: int, data: st.DataObject) -> None:
    """Clopper and Pearson's interval by the beta distribution."""
    successes = data.draw(st.integers(0, trials))
    expected = scipy_stats.binomtest(successes, trials).proportion_ci(0.95, "exact")
    ours = rate_interval(successes, trials)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(values=P_VALUES)
def test_holm_is_statsmodels(multitest: Any, values: list[float]) -> None:
    """The same adjustment as the usual package makes."""
    expected = multitest.multipletests(values, method="holm")[1]
    assert stats.holm(values) == pytest.approx(list(expected))


@given(values=VALUES, share=st.floats(0, 1))
def test_quantiles_are_numpys(numpy: Any, values: list[float], share: float) -> None:
    """Its default definition."""
    expected = float(numpy.quantile(values, share))
    assert quantile(sorted(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-6)
