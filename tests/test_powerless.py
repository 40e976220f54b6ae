"""A check whose control survives ends `verify` with a status other than 0, unless it is said why."""

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
import pytest

from grpo_theory.harness import command
from grpo_theory.harness.powerless import unexplained
from simulations.__main__ import parser
from simulations.collection import catalogue, collection

POWERLESS = collection().powerless
VERDICTS = pd.read_csv(Path(__file__).resolve().parents[1] / "docs" / "verdicts.csv", keep_default_na=False)


def rows(*made):
    """Return rows of claims: statement, setting, whether the control has power, and its estimate; that of the claim is 1."""
    found = pd.DataFrame(made, columns=["id", "problem", "power", "control_estimate"])
    return found.assign(verdict="confirmed", estimate=1.0, prediction=0.0, control_prediction=0.0, replications=0)


def test_what_is_named_is_explained_and_nothing_else():
    named = next(iter(POWERLESS))
    found = unexplained(
        rows(
            (*named, False, 2.0), ("U1", "mixed", False, 2.0), ("U1", "tabular", True, 2.0), (named[0], "elsewhere", False, 2.0)
        ),
        POWERLESS,
        quick=False,
    )
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
    powerless = VERDICTS.assign(power=VERDICTS["control"] == "refuted", **nothing)
    assert unexplained(powerless, POWERLESS, quick=False).empty


@pytest.mark.parametrize("blind", [False, True])
def test_a_control_that_is_made_its_claim_fails_the_run(blind, tmp_path, capsys):
    ours = collection()
    study = ours.studies["lemma_14"]

    def claims(table):
        return [dataclasses.replace(one, control=one.evidence) if blind else one for one in study.claims(table)]

    chosen = dataclasses.replace(ours, studies={"lemma_14": dataclasses.replace(study, claims=claims)})
    asked = ["verify", "lemma_14", "--quick", "--results", str(tmp_path), "--workers", "1"]
    assert command.obey(parser().parse_args(asked), chosen) == (1 if blind else 0)
    assert ("could not have failed, first " in capsys.readouterr().err) == blind
