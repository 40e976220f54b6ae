"""Judging: a statement is confirmed at its level, refuted at a share of it, and checks without power are told."""

import dataclasses

import numpy as np
import pytest

from grpo_theory.evidence import LEVEL, Claim, Evidence, Statement, judge
from grpo_theory.evidence.verdicts import COLUMNS

EXACT = Evidence(1.0, 1.0)
WRONG = Evidence(1.0, 1.1)
SAMPLED = Evidence(1.001, 1.0, standard_error=0.001, margin=0.02, replications=1000)
SAMPLED_WRONG = dataclasses.replace(SAMPLED, prediction=1.2)


UNDECIDED = dataclasses.replace(SAMPLED, estimate=1.015, prediction=1.0, standard_error=0.0035)
"""Limits that lie across the margin of 2%, and are narrower than that."""


def claim(evidence=SAMPLED, control=SAMPLED_WRONG, kind="equality", **more):
    statement = Statement("U5", "arXiv 2603.01162, Corollary 4", "they agree", kind)
    return Claim(statement, "linear", evidence, control, **more)


def test_a_row_for_each_claim():
    table = judge([claim(), claim(EXACT, WRONG, "identity", facts={"correlation": 0.123456, "L": 2.0})])
    assert tuple(table.columns) == COLUMNS
    assert table["verdict"].tolist() == ["confirmed", "confirmed"]
    assert table["control"].tolist() == ["refuted", "refuted"]
    assert table["power"].tolist() == [True, True]
    assert table["facts"].tolist() == ["", "correlation = 0.1235; L = 2"]
    stated = ["U5", "paper", "arXiv 2603.01162, Corollary 4", "they agree", "equality", "linear"]
    assert table.loc[0, ["id", "whose", "source", "statement", "kind", "problem"]].tolist() == stated
    numbers = table.loc[0, ["estimate", "prediction", "standard_error", "margin", "replications"]]
    assert numbers.tolist() == [1.001, 1.0, 0.001, 0.02, 1000]
    assert table.loc[0, ["control_estimate", "control_prediction"]].tolist() == [1.001, 1.2]


@pytest.mark.parametrize(("sampled", "exact"), [(1, 0), (10, 3)])
def test_limits_to_refute_share_the_level_among_the_sampled_settings_of_the_statement(sampled, exact):
    """Limits to confirm do not; exact settings, controls and other statements take no share."""
    other = dataclasses.replace(claim().statement, id="U6")
    mixed = [claim()] * sampled + [claim(EXACT, WRONG, "identity")] * exact + [dataclasses.replace(claim(), statement=other)]
    table = judge(mixed)[:sampled]
    for low, high, level in (("low", "high", LEVEL), ("outer_low", "outer_high", LEVEL / sampled)):
        half = SAMPLED.half_width(level, 1000)
        np.testing.assert_allclose(table[high], 1.001 + half, rtol=1e-14)
        np.testing.assert_allclose(table[low], 1.001 - half, rtol=1e-14)


def test_the_level_can_be_chosen_and_is_shared_among_the_estimates_of_which_one_is_extreme():
    wide, narrow = judge([claim()], level=1e-9), judge([claim()], level=0.5)
    assert wide["high"][0] > narrow["high"][0]
    extreme = judge([claim(dataclasses.replace(SAMPLED, comparisons=4))], level=0.01)
    assert extreme["high"][0] == pytest.approx(1.001 + SAMPLED.half_width(0.0025, 1000), rel=1e-14)


def test_what_only_the_limits_to_confirm_would_refute_is_undecided():
    """With 10 settings the outer limits hold the bound, and the inner ones do not; alone the setting is refuted."""
    above = 0.5 * sum(SAMPLED.half_width(LEVEL / n, 1000) for n in (1, 10))
    off = dataclasses.replace(SAMPLED, estimate=1.0 + above)
    below = dataclasses.replace(SAMPLED, estimate=0.9)
    assert judge([claim(off, WRONG, "upper bound")])["verdict"][0] == "refuted"
    table = judge([claim(one, SAMPLED_WRONG, "upper bound") for one in (off, *[below] * 9)])
    assert table["verdict"].tolist() == ["inconclusive", *["no power"] * 9]
    assert table["needed"][0] > 1000


def test_what_a_paper_measured_on_its_own_model_is_reproduced_or_not():
    """The words alone are others: intervals, power and the control's verdict are as of any statement."""
    measured = dataclasses.replace(claim().statement, measured=True)
    weak = dataclasses.replace(SAMPLED, prediction=1.002)
    evidence = [claim(), claim(SAMPLED_WRONG), claim(UNDECIDED), claim(control=weak)]
    table = judge([dataclasses.replace(one, statement=measured) for one in evidence])
    assert table["verdict"].tolist() == ["reproduced here", "not reproduced here", "inconclusive", "no power"]
    plain = judge(evidence)
    assert plain["control"].tolist() == ["refuted", "refuted", "refuted", "confirmed"]
    assert plain["power"].tolist() == [True, True, True, False]
    assert plain["verdict"].tolist() == ["confirmed", "refuted", "inconclusive", "no power"]
    assert table.drop(columns="verdict").equals(plain.drop(columns="verdict"))


def test_what_is_undecided_says_how_many_replications_would_do():
    table = judge([claim(UNDECIDED)])
    assert table["verdict"][0] == "inconclusive"
    needed = int(table["needed"][0])
    assert UNDECIDED.half_width(LEVEL, needed) <= 0.005 < UNDECIDED.half_width(LEVEL, needed - 1)


def test_a_right_statement_is_refuted_and_a_wrong_one_confirmed_no_more_often_than_the_level(seed):
    """400 statements of 10 settings at level 0.2: at most 80 expected to be wrong, and 4.9 sigma is 119.

    Without sharing the level out, a right statement would be refuted with probability 1 - 0.8^10 = 0.89: 357 of 400. Of the wrong
    one a single setting is wrong, as little as can be: an upper bound that is exceeded by nothing to speak of.
    """
    rng, most = np.random.default_rng(seed(1)), 80 + 4.9 * np.sqrt(400 * 0.2 * 0.8)

    def verdicts(truths, kind):
        found = truths + 0.1 * rng.standard_normal(10)
        evidence = [Evidence(x, 1.0, 0.1, 0.0, 10**9) for x in found]
        return judge([claim(one, Evidence(1.2, 1.1), kind) for one in evidence], level=0.2)["verdict"]

    refuted = sum((verdicts(np.ones(10), "equality") == "refuted").any() for _ in range(400))
    assert 20 < refuted < most
    truths = np.where(np.arange(10) == 3, 1.0 + 1e-9, 0.0)
    confirmed = sum((verdicts(truths, "upper bound") == "confirmed").all() for _ in range(400))
    assert 10 < confirmed < most
