"""The coverage study: its problems and truths against independent calculations, its claims, controls and advice."""

import json
from math import sqrt

import numpy as np
import pandas as pd
import pytest
from enumeration import Case, prompts

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.harness.study import cell_seed, study_of, table_of
from grpo_theory.laboratory import replications_to_tell
from paper_figures.content.coverage_advice import advice, choices
from simulations.coverage import coverage
from simulations.coverage.candidates import ASKED, CANDIDATES, Candidate, truth
from simulations.coverage.narrowing import narrowing
from simulations.coverage.problems import problem

HALF_TRAINED = "half-trained, balanced"


def table(cells, seed=0):
    """Compute cells and build their table, through JSON as the store does."""
    study, results = study_of(coverage), []
    for cell in cells:
        computed = study.compute(cell.settings, np.random.default_rng(cell_seed("coverage", cell, seed)), 0)
        results.append((cell.settings, [json.loads(json.dumps(computed))]))
    return table_of(study.table(results, True))


def verdicts(found):
    """Judge what a table claims."""
    return judge(study_of(coverage).claims(found)).set_index("id")


def test_truths_are_sums_over_all_outcomes_of_small_groups():
    """c1, c2 and c3 from the definitions; the error by the law of total variance from all groups of two responses."""
    case = problem(HALF_TRAINED)
    tables = prompts(Case(case, case.policy.logit_map.features))
    gradients = np.array([one.gradient for one in tables])
    mean, within = gradients.mean(axis=0), np.zeros(2)
    np.testing.assert_allclose(truth("gradient", HALF_TRAINED), mean, rtol=1e-12)
    assert truth("value", HALF_TRAINED) == pytest.approx(np.mean([one.value for one in tables]), rel=1e-12)
    for one in tables:
        z, w, p = one.rewards, one.scores, one.probabilities
        pairs = (((w[:, None] - w) * (z[:, None] - z)[..., None] / 2.0) ** 2).sum(axis=2)
        singles = ((w * (z - one.value)[:, None]) ** 2).sum(axis=1)
        within += np.array([p @ pairs @ p, p @ singles]) / len(tables)
    power = (gradients**2).sum(axis=1).mean()
    c1, c2 = power - mean @ mean, within[1] - power
    c3 = 2.0 * (within[0] - power - c2 / 2.0)
    np.testing.assert_allclose(truth("components", HALF_TRAINED), (c1, c2, c3), rtol=1e-10)
    b, g = ASKED
    assert truth("error", HALF_TRAINED) == pytest.approx(c1 / b + c2 / (b * g) + c3 / (b * g * (g - 1)), rel=1e-10)
    assert truth("group size", HALF_TRAINED) == pytest.approx(1.0 + sqrt(c3 / c1), rel=1e-10)


def test_limits_are_those_of_many_prompts(seed):
    """At B = 1024 the share of covering intervals is the limit; that of twice the group size is told apart."""
    asked = {"experiment": gt.Pilot(1024, 4), "replications": 2000, "rng": seed(3)}
    for one in (one for one in CANDIDATES if one.limit is not None):
        limit, other = (np.min(one.limit(HALF_TRAINED, size, 0.95)) for size in (4, 8))
        at = np.argmin(one.limit(HALF_TRAINED, 4, 0.95))
        run = gt.coverage(one.function, problem(HALF_TRAINED), truth(one.target, HALF_TRAINED), **asked)
        error = sqrt(limit * (1.0 - limit) / 2000)
        assert abs(np.ravel(run.coverage)[at] - limit) < 4.0 * error
        assert abs(other - limit) > 8.0 * error


def test_a_sound_interval_is_confirmed_and_a_wrong_one_refuted(monkeypatch):
    """With enough replications to tell 95% from 92.2%, which a nominal interval has when a tenth narrower."""
    replications = replications_to_tell(0.95, 0.9223, error=1e-5, power=0.999)
    case = {"part": "point", "problem": HALF_TRAINED, "target": "value", "batch_size": 64, "group_size": 8}
    case |= {"replications": 4 * replications, "slow_replications": 0}
    monkeypatch.setitem(coverage.coverage.__dict__, "cases", [case])
    monkeypatch.setitem(coverage.measures.__dict__, "cases", [])
    found = verdicts(table(study_of(coverage).cells(True)))
    assert found["power"].all()
    assert found.loc["CI/value_naive", "verdict"] == "refuted"
    assert found.loc["CI/value_effective", "verdict"] == "confirmed"
    assert found.loc["CI/value_clustered", "verdict"] != "refuted"
    one = next(one for one in CANDIDATES if one.name == "value_clustered")
    broken = Candidate(one.name, narrowing(one.function, 0.9), one.target, one.conservative)
    monkeypatch.setattr(coverage, "CANDIDATES", [broken])
    assert verdicts(table(study_of(coverage).cells(True))).loc["CI/value_clustered", "verdict"] == "refuted"


def advice_table(coverages, widths):
    """A design of four cells in which the worst covered of two components has given coverages, with given widths."""
    rows = []
    for name, shares in coverages.items():
        for number, share in enumerate(shares):
            key = {"part": "design", "success": "common", "target": "value", "interval": name, "level": 0.95, "component": ""}
            key |= {"problem": "p", "batch_size": 16, "group_size": 2**number, "replications": 100, "failures": 0}
            rows += [
                key | {"measure": measure, "estimate": value, "low": 0.0, "high": 1.0}
                for measure, value in (("coverage", share), ("coverage", 1.0), ("median width", widths[name]), ("unbounded", 0.0))
            ]
    return pd.DataFrame(rows)


def test_advice_follows_its_rule_and_not_the_names():
    shares = {"short": [0.95, 0.9, 0.9, 0.95], "wide": [0.97] * 4, "fair": [0.95, 0.94, 0.8, 0.95], "few": [0.95]}
    widths = {"short": 1.0, "wide": 3.0, "fair": 2.0, "few": 0.5}
    found = advice(advice_table(shares, widths)).set_index("interval")
    verdicts = {"short": "not sound", "wide": "sound", "fair": "recommended", "few": "sound; few cells"}
    assert found["advice"].to_dict() == verdicts
    assert found.loc["wide", "relative width"] == 1.5
    assert choices(found.reset_index())["success common, B = 16"].tolist() == ["fair"]
    assert found.loc["fair", "worst at"] == "p, B = 16, G = 4"
