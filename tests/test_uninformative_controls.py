"""A check whose control survives ends `verify` with a status other than 0, unless it is said why."""

from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
import pytest

from grpo_theory.harness.store import unexplained
from simulations.collection import catalogue, collection

POWERLESS = collection().uninformative
VERDICTS = pd.read_csv(Path(__file__).resolve().parents[1] / "docs" / "verdicts.csv", keep_default_na=False)


def rows(*made):
    """Return rows of claims: statement, setting, whether the control has power, and its estimate; that of the claim is 1."""
    found = pd.DataFrame(made, columns=["id", "problem", "power", "control_estimate"])
    return found.assign(verdict="confirmed", estimate=1.0, prediction=0.0, control_prediction=0.0, replications=0)


def test_what_is_named_is_explained_and_nothing_else():
    named = next(iter(POWERLESS))
    made = [(*named, False, 2.0), ("U1", "mixed", False, 2.0), ("U1", "tabular", True, 2.0), (named[0], "elsewhere", False, 2.0)]
    found = unexplained(rows(*made), POWERLESS, quick=False)
    assert found["problem"].tolist() == ["mixed", "elsewhere"]


def test_of_a_quick_run_only_controls_that_are_their_claims_count():
    claims = rows(("U1", "mixed", False, 2.0), ("U1", "tabular", False, 1.0))
    assert unexplained(claims, POWERLESS, quick=True)["problem"].tolist() == ["tabular"]
    assert unexplained(claims.assign(replications=9), POWERLESS, quick=True).empty
    assert len(unexplained(claims, POWERLESS, quick=False)) == 2


@pytest.mark.parametrize(("name", "setting"), POWERLESS)
def test_each_that_is_named_is_there_and_has_no_power(name, setting):
    assert name in catalogue()
    matches = VERDICTS["problem"].map(lambda problem: fnmatchcase(problem, setting))
    own = VERDICTS[(VERDICTS["id"] == name) & matches]
    assert len(own)
    assert (own["control"] != "refuted").all()


def test_every_check_without_power_is_named():
    nothing = {"control_estimate": 0.0, "control_prediction": 0.0, "replications": 1}
    uninformative = VERDICTS.assign(power=VERDICTS["control"] == "refuted", **nothing)
    assert unexplained(uninformative, POWERLESS, quick=False).empty
