"""Judging a whole report: the family error is shared out, and checks without power are told."""

import dataclasses

import numpy as np
import pytest

from grpo_theory.evidence import FAMILY_ERROR, Claim, Evidence, Statement, judge
from grpo_theory.evidence.verdicts import COLUMNS

EXACT = Evidence(1.0, 1.0)
WRONG = Evidence(1.0, 1.1)
SAMPLED = Evidence(1.001, 1.0, standard_error=0.001, margin=0.02, replications=1000)
SAMPLED_WRONG = dataclasses.replace(SAMPLED, prediction=1.2)


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
    assert table["source"].tolist() == ["arXiv 2603.01162, Corollary 4"] * 2
    assert table["statement"].tolist() == ["they agree"] * 2
    assert table["whose"].tolist() == ["paper"] * 2
    first = table.iloc[0]
    assert (first["id"], first["kind"], first["problem"]) == ("U5", "equality", "linear")
    numbers = first["estimate"], first["prediction"], first["standard_error"], first["margin"], first["replications"]
    assert numbers == (1.001, 1.0, 0.001, 0.02, 1000)
    assert (first["control_estimate"], first["control_prediction"]) == (1.001, 1.2)


@pytest.mark.parametrize("exact", [0, 3])
@pytest.mark.parametrize("sampled", [1, 10])
def test_the_family_error_is_shared_by_what_rests_on_sampling(sampled, exact):
    """A claim and its control count as two; exact evidence misses nothing and takes no share."""
    table = judge([claim()] * sampled + [claim(EXACT, WRONG, "identity")] * exact)
    half = SAMPLED.half_width(FAMILY_ERROR / (2 * sampled), 1000)
    np.testing.assert_allclose(table["high"][:sampled], 1.001 + half, rtol=1e-14)
    np.testing.assert_allclose(table["low"][:sampled], 1.001 - half, rtol=1e-14)


def test_a_claim_with_an_exact_control_counts_once():
    table = judge([claim(control=WRONG)], family_error=0.01)
    assert table["high"][0] == pytest.approx(1.001 + SAMPLED.half_width(0.01, 1000), rel=1e-14)


def test_the_family_error_can_be_chosen():
    wide, narrow = judge([claim()], family_error=1e-9), judge([claim()], family_error=0.5)
    assert wide["high"][0] > narrow["high"][0]


@pytest.mark.parametrize("family_error", [0.0, 1.0, -0.1, np.nan])
def test_the_family_error_is_a_probability(family_error):
    with pytest.raises(ValueError, match=r"family_error must lie in \(0, 1\), got"):
        judge([claim()], family_error=family_error)


def test_a_control_that_survives_is_reported_as_no_power():
    weak = dataclasses.replace(SAMPLED, prediction=1.002)
    table = judge([claim(control=weak), claim(control=SAMPLED_WRONG)])
    assert table["control"].tolist() == ["confirmed", "refuted"]
    assert table["power"].tolist() == [False, True]
    assert table["verdict"].tolist() == ["no power", "confirmed"]


def test_an_undecided_control_has_no_power_either():
    noisy = dataclasses.replace(SAMPLED_WRONG, standard_error=0.1)
    table = judge([claim(control=noisy)])
    assert table["control"][0] == "inconclusive"
    assert not table["power"][0]
    assert table["verdict"][0] == "no power"


def test_without_power_a_refutation_stays_and_so_does_an_open_question():
    weak = dataclasses.replace(SAMPLED, prediction=1.002)
    undecided = dataclasses.replace(SAMPLED, standard_error=0.1)
    table = judge([claim(SAMPLED_WRONG, control=weak), claim(undecided, control=weak)])
    assert table["verdict"].tolist() == ["refuted", "inconclusive"]
    assert not table["power"].any()


def test_what_a_paper_measured_on_its_own_model_is_reproduced_or_not():
    """The words alone are others: intervals, power and the control's verdict are as of any statement."""
    measured = dataclasses.replace(claim().statement, measured=True)
    evidence = [claim(), claim(SAMPLED_WRONG), claim(dataclasses.replace(SAMPLED, standard_error=0.1)), claim(control=SAMPLED)]
    table = judge([dataclasses.replace(one, statement=measured) for one in evidence])
    assert table["verdict"].tolist() == ["reproduced here", "not reproduced here", "inconclusive", "no power"]
    plain = judge(evidence)
    assert plain["verdict"].tolist() == ["confirmed", "refuted", "inconclusive", "no power"]
    assert table.drop(columns="verdict").equals(plain.drop(columns="verdict"))


def test_what_is_undecided_says_how_many_replications_would_do():
    noisy = dataclasses.replace(SAMPLED, standard_error=0.1)
    table = judge([claim(noisy)])
    assert table["verdict"][0] == "inconclusive"
    needed, level = int(table["needed"][0]), FAMILY_ERROR / 2
    assert noisy.half_width(level, needed) <= 0.019 < noisy.half_width(level, needed - 1)


def test_no_claims_make_an_empty_table_with_its_columns():
    table = judge([])
    assert tuple(table.columns) == COLUMNS
    assert len(table) == 0


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"kind must be one of identity, .*, ordering, got 'equalty'"):
        judge([claim(), claim(kind="equalty")])


def test_false_alarms_of_a_whole_report_stay_within_the_family_error(seed):
    """400 reports of 10 true claims at family error 0.2: at most 80 expected to hold a refutation; 4.9 sigma is 119.

    Without sharing the error out, a report would hold one with probability 1 - 0.8^10 = 0.89: 357 of 400.
    """
    rng = np.random.default_rng(seed(1))

    def report():
        found = 1.0 + 0.1 * rng.standard_normal(10)
        return judge([claim(Evidence(x, 1.0, 0.1, 0.0, 10**9), WRONG) for x in found], family_error=0.2)

    alarms = sum((report()["verdict"] == "refuted").any() for _ in range(400))
    assert alarms < 80 + 4.9 * np.sqrt(400 * 0.2 * 0.8)
    assert alarms > 20
