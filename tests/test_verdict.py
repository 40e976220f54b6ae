"""The rules of judgement: each kind confirmed, refuted and inconclusive on evidence made by hand."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom, kstest, norm, t

from grpo_theory.evidence import KINDS, Claim, Evidence, Margin, Share, Statement, log_log_slope
from grpo_theory.evidence import judge as judge_report
from grpo_theory.evidence.reading import difference, evidence, largest, most
from grpo_theory.evidence.rules import SKEWNESS

LEVEL = 1e-3
Z = -ndtri(LEVEL / 2)


def judge(kind, estimate, prediction, error=0.0, margin=0.0, replications=1000):
    return KINDS[kind](Evidence(estimate, prediction, error, margin, replications), LEVEL)


@pytest.mark.parametrize(
    ("kind", "estimate", "prediction", "error", "margin", "verdict"),
    [
        ("identity", 2.0 + 1e-11, 2.0, 0.0, 0.0, "confirmed"),
        ("identity", 1e-9, 0.0, 0.0, 0.0, "refuted"),
        ("identity", 1e6 + 1e-5, 1e6, 0.0, 0.0, "confirmed"),
        ("identity", 1e6 + 1e-3, 1e6, 0.0, 0.0, "refuted"),
        ("equality", 1.01, 1.0, 0.001, 0.05, "confirmed"),
        ("equality", 1.06, 1.0, 0.001, 0.05, "refuted"),
        ("equality", 0.94, 1.0, 0.001, 0.05, "refuted"),
        ("equality", 1.05, 1.0, 0.001, 0.05, "inconclusive"),
        ("equality", 1.001, 1.0, 0.0, 0.01, "confirmed"),
        ("equality", 1.011, 1.0, 0.0, 0.01, "refuted"),
        ("equality", -1.001, -1.0, 0.001, 0.01, "confirmed"),
        ("equality", 1.0 + 1e-12, 1.0, 0.0, 0.0, "confirmed"),
        ("equality", 1.0 + 1e-6, 1.0, 0.0, 0.0, "refuted"),
        ("upper bound", 0.9, 1.0, 0.01, 0.0, "confirmed"),
        ("upper bound", 1.1, 1.0, 0.01, 0.0, "refuted"),
        ("upper bound", 0.99, 1.0, 0.01, 0.0, "inconclusive"),
        ("upper bound", 1.0 + 1e-12, 1.0, 0.0, 0.0, "confirmed"),
        ("rate", -1.02, -1.0, 0.01, 0.1, "confirmed"),
        ("rate", -1.3, -1.0, 0.01, 0.1, "refuted"),
        ("rate", -1.09, -1.0, 0.01, 0.1, "inconclusive"),
        ("ordering", -0.1, 0.0, 0.01, 0.0, "confirmed"),
        ("ordering", 0.1, 0.0, 0.01, 0.0, "refuted"),
        ("ordering", -0.01, 0.0, 0.01, 0.0, "inconclusive"),
        ("ordering", 0.0, 0.0, 0.0, 0.0, "inconclusive"),
        ("law", 0.5, 0.0, 0.0, 0.1, "refuted"),
        ("law", 0.05, 0.0, 0.0, 0.13, "confirmed"),
        ("law", 0.05, 0.0, 0.0, 0.1, "inconclusive"),
    ],
)
def test_verdicts(kind, estimate, prediction, error, margin, verdict):
    found = judge(kind, estimate, prediction, error, margin)
    assert found.verdict == verdict
    assert found.needed == 0 or verdict == "inconclusive"
    assert found.low <= estimate <= found.high


def test_an_exact_tie_refutes_an_order():
    found = [judge("ordering", difference, 0.0, replications=0).verdict for difference in (0.0, -1e-13, -1e-6)]
    assert found == ["refuted", "refuted", "confirmed"]


WIDE = {"equality": (1.0, 1.0, 0.01), "rate": (-1.0, -1.0, 0.1), "law": (0.0, 0.0, 0.05), "upper bound": (0.0, 0.1, 0.0)}
"""The best outcome of each kind that can be undecidable: estimate, prediction and margin."""


@pytest.mark.parametrize("kind", WIDE)
def test_limits_too_wide_for_the_best_outcome_leave_an_estimate_only(kind):
    """With a hundredth less of the replications that it asks for it is that still; with as many the best outcome is confirmed."""
    estimate, prediction, margin = WIDE[kind]
    statement = Statement("X", "test", "text", kind)

    def judged(replications):
        error = 0.0 if kind == "law" else 1.0 / np.sqrt(replications)
        own = Evidence(estimate, prediction, error, margin, replications)
        return judge_report([Claim(statement, "a", own, Evidence(prediction + 10.0, prediction))]).iloc[0]

    first = judged(100)
    assert (first["verdict"], first["needed"] > 100) == ("estimate only", True)
    assert judged(int(0.99 * first["needed"]))["verdict"] == "estimate only"
    assert judged(int(1.001 * first["needed"]))["verdict"] == "confirmed"
    far = Evidence(prediction + 50.0, prediction, 1.0, margin, 100)
    assert judge_report([Claim(statement, "a", far, Evidence(9.0, prediction))])["verdict"].tolist() == ["refuted"]


@pytest.mark.parametrize(("estimate", "verdict"), [(0.009, "confirmed"), (-0.009, "confirmed"), (0.011, "refuted")])
def test_an_absolute_margin_is_for_what_may_be_nothing(estimate, verdict):
    for absolute, expected in ((True, verdict), (False, "refuted")):
        margin = Margin(0.01, "less is not seen", absolute=absolute)
        claim = Statement("X", "test", "text", "equality", margin=margin).claim("a", Evidence(estimate, 0.0), Evidence(0.02, 0.0))
        assert judge_report([claim])[["verdict", "control"]].values.tolist() == [[expected, "refuted"]]


@pytest.mark.parametrize("kind", ["equality", "upper bound", "rate", "ordering"])
def test_intervals_are_students_with_room_for_skewness(kind):
    found = judge(kind, 0.7, 1.0, 0.1, 0.2)
    quantile = t.isf(LEVEL / 2, 999)
    first, second = np.sqrt(8) * (1 + 2 * quantile**2) / 6, 11 * quantile * (quantile**2 + 2) / 9
    half = 0.1 * (quantile + first / np.sqrt(1000) + second / 1000)
    np.testing.assert_allclose((found.low, found.high), (0.7 - half, 0.7 + half), rtol=1e-12)
    many = judge(kind, 0.7, 1.0, 0.1, 0.2, 10**14)
    np.testing.assert_allclose((many.low, many.high), (0.7 - Z * 0.1, 0.7 + Z * 0.1), rtol=1e-6)


@pytest.mark.parametrize(("skewness", "runs"), [(1.5, 24), (SKEWNESS, 24), (SKEWNESS, 96)])
def test_limits_of_a_mean_of_gamma_variables_hold_at_their_skewness(skewness, runs, seed):
    """At 1e-3 they miss at most 1.5 times as often as they say; without room for skewness more than twice."""
    level, n = 1e-3, 100_000
    shape = 4.0 / skewness**2
    values = np.random.default_rng(seed(6)).standard_gamma(shape, (n, runs))
    distances = np.abs(values.mean(axis=1) - shape) / (values.std(axis=1, ddof=1) / np.sqrt(runs))

    def missed(allowed):
        return (distances > Evidence(1.0, 1.0, 1.0, replications=runs, skewness=allowed).half_width(level, runs)).mean()

    # The standard error is 1 here, and half_width is then the quantile that the distances are held against.
    assert missed(skewness) < 1.5 * level
    assert missed(0.0) > 2.0 * level
    assert missed(2.0 * skewness) < missed(skewness) + 1e-12


@pytest.mark.parametrize("trials", [64, 128, 50_000])
def test_limits_of_a_share_miss_no_more_often_than_they_say(trials):
    """Exactly, over all counts; normal limits miss 31 times as often with 64 trials of 95%."""
    level, truth = 1e-5, 0.95
    counts = np.arange(trials + 1)
    chances = binom.pmf(counts, trials, truth)
    kept = chances > 1e-300
    limits = np.array([Share(k / trials, truth, replications=trials).interval(level) for k in counts[kept]])
    missed = (limits[:, 0] > truth) | (limits[:, 1] < truth)
    assert chances[kept][missed].sum() <= level
    normal = np.abs(counts / trials - truth) > -ndtri(level / 2) * np.sqrt(truth * (1 - truth) / trials)
    assert chances[normal].sum() > {64: 20.0, 128: 5.0, 50_000: 0.9}[trials] * level


def test_a_share_is_judged_like_any_other_evidence():
    def equal(share, number):
        return KINDS["equality"](Share(share, 0.95, margin=0.01, replications=number), LEVEL)

    def below(number):
        return KINDS["upper bound"](Share(0.3, 0.5, margin=0.0, replications=number), LEVEL)

    found = [equal(0.95, 50_000), equal(0.93, 50_000), equal(0.95, 1000), equal(0.95, 2 * equal(0.95, 1000).needed)]
    assert [one.verdict for one in found] == ["confirmed", "refuted", "inconclusive", "confirmed"]
    few = below(20).needed
    found = [below(number).verdict for number in (20, few // 20 * 10, -(-few // 10) * 10)]
    assert found == ["inconclusive", "inconclusive", "confirmed"]
    none = (LEVEL / 2) ** (1 / 30)
    found = [Share(share, 0.95, replications=30).interval(LEVEL) for share in (1.0, 0.0)]
    np.testing.assert_allclose(found, [(none, 1.0), (0.0, 1.0 - none)], rtol=1e-12)


def test_a_law_is_judged_by_the_dvoretzky_kiefer_wolfowitz_band():
    half = np.sqrt(np.log(2 / LEVEL) / 2000)
    found = judge("law", 0.05, 0.0, margin=0.07)
    assert (found.low, found.high) == (0.0, pytest.approx(0.05 + half, rel=1e-14))
    for distance, margin, runs, verdict in (
        (0.07 + half * 1.0001, 0.07, 1000, "refuted"),
        (0.07 + half * 0.9999, 0.07, 1000, "inconclusive"),
        (half * 0.9999, 2.0 * half, 1000, "confirmed"),
        (half * 0.9999, 1.9998 * half, 1000, "inconclusive"),
        (0.069, 0.07, 0, "confirmed"),
        (0.071, 0.07, 0, "refuted"),
    ):
        assert judge("law", distance, 0.0, margin=margin, replications=runs).verdict == verdict


def test_a_law_refutes_the_truth_at_most_as_often_as_its_level_says(seed):
    n, level = 2000, 0.05
    rng = np.random.default_rng(seed(2))
    distances = [kstest(rng.standard_normal(200), norm.cdf).statistic for _ in range(n)]
    refuted = sum(KINDS["law"](Evidence(d, 0.0, 0.0, 0.0, 200), level).verdict == "refuted" for d in distances)
    assert refuted < n * level + 4.9 * np.sqrt(n * level * (1 - level))
    shifted = [kstest(rng.standard_normal(200) + 0.5, norm.cdf).statistic for _ in range(200)]
    assert sum(KINDS["law"](Evidence(d, 0.0, 0.0, 0.0, 200), level).verdict == "refuted" for d in shifted) > 190


BAD = [
    (lambda: Evidence(np.nan, 1.0), r"evidence must be finite, got .* = \(nan, 1\.0, 0\.0, 0\.0\)"),
    (lambda: Evidence(1.0, 1.0, -0.1), "must not be negative"),
    (lambda: Evidence(1.0, 1.0, replications=2.5), r"replications must be an integer of at least 0, got 2\.5"),
    # which would escape the family error, because that counts sampled evidence
    (lambda: Evidence(1.0, 1.0, 0.1), "replications must be .* standard_error"),
    (lambda: Evidence(1.0, 1.0, skewness=np.nan), "skewness must be"),
    (lambda: Evidence(1.0, 1.0, comparisons=0), "comparisons must be at least 1, got 0"),
    (lambda: Share(1.2, 0.95, replications=10), r"a share must lie in \[0, 1\] and have replications, got 1.2 of 10"),
    (lambda: log_log_slope([1.0, 2.0], [1.0]), "y must have shape"),
    (lambda: log_log_slope([1.0, 0.0], [1.0, 1.0]), "x and y must be above 0 for a log-log slope"),
    (lambda: log_log_slope([2.0, 2.0], [1.0, 3.0]), "x must have at least two"),
    (lambda: log_log_slope([1.0, 2.0], [1.0, 2.0], [-0.1, 0.1]), "standard_errors must"),
    (lambda: largest([1.0, np.nan]), "number"),
]


def test_what_is_no_evidence_is_refused(check_refused):
    check_refused(*BAD, error=(TypeError, ValueError))


def test_slope_of_a_power_law():
    x = np.array([2.0, 4.0, 8.0, 32.0])
    assert log_log_slope(x, 3.0 * x**-1.5) == (pytest.approx(-1.5, rel=1e-14), 0.0)


def test_the_slopes_standard_error_is_that_of_repeated_samples(seed):
    x, errors = np.array([2.0, 4.0, 8.0, 16.0]), np.array([0.02, 0.03, 0.01, 0.04])
    y, rng = x**-1.0, np.random.default_rng(seed(3))
    _, stated = log_log_slope(x, y, errors * y)
    slopes = [log_log_slope(x, y * (1 + errors * rng.standard_normal(4)))[0] for _ in range(4000)]
    assert abs(np.std(slopes) / stated - 1.0) < 4.9 / np.sqrt(2 * 4000) + 0.005
    assert abs(np.mean(slopes) + 1.0) < 4.9 * stated / np.sqrt(4000) + 0.002


def test_errors_of_independent_estimates_add_in_squares_and_a_row_is_judged_by_its_own_prediction_unless_another_is_given():
    names = ("estimate", "standard_error", "replications", "prediction")
    one, other = (dict(zip(names, row, strict=True)) for row in ((3.0, 0.3, 100, 2.5), (1.0, 0.4, 50, 0.0)))
    found = difference(one, other, prediction=1.5)
    assert (found.estimate, found.prediction, found.replications) == (2.0, 1.5, 50)
    assert found.standard_error == pytest.approx(0.5, rel=1e-14)
    assert [evidence(one).prediction, evidence(one, 0.0, margin=0.2).prediction] == [2.5, 0.0]
    assert evidence(one, comparisons=3).comparisons == 3


def test_most_is_a_share_of_those_in_which_it_does_not_hold():
    found = most([True, True, False, True])
    assert (found.estimate, found.prediction, found.replications) == (0.25, 0.5, 4)
