"""The coverage study: its problems and truths against independent calculations, its claims, controls and advice."""

import json
from itertools import product
from math import sqrt

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.harness.sides import study_of
from grpo_theory.harness.study import cell_seed, table_of
from grpo_theory.laboratory import replications_to_tell
from paper_figures.content.coverage_advice import advice, choices
from simulations.coverage import coverage
from simulations.coverage.candidates import ASKED, CANDIDATES, Candidate, truth
from simulations.coverage.narrowing import narrowing, remembering
from simulations.coverage.problems import NAMES, RARE, SURE, directions, problem

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


@pytest.fixture(scope="module")
def quick():
    """The quick design, with so few replications that only its shape is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "QUICK_REPLICATIONS", 32)
        patch.setattr(coverage, "QUICK_SLOW_REPLICATIONS", 8)
        return table(study_of(coverage).cells(True))


def probabilities(case):
    """Softmax of features times parameters, written out."""
    logits = np.einsum("mkd,d->mk", case.policy.logit_map.features, case.theta)
    weights = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True)


def test_policies_are_what_their_names_say():
    """Values and largest probabilities from the features alone."""
    values = {name: float((probabilities(problem(name)) * problem(name).bandit.mean_reward).sum(axis=1).mean()) for name in NAMES}
    sure = {name: probabilities(problem(name)).max(axis=1).mean() for name in NAMES}
    assert all(values[name] == pytest.approx(RARE, rel=1e-12) for name in NAMES if name.endswith("rare"))
    start, half, end = (values[f"{stage}, balanced"] for stage in ("random", "half-trained", "near-deterministic"))
    assert 0.45 < (half - start) / (end - start) < 0.6
    assert SURE <= sure["near-deterministic, rare"] == sure["near-deterministic, balanced"] < SURE + 0.01
    assert sure["random, balanced"] < 0.6


def test_truths_are_sums_over_all_outcomes_of_small_groups():
    """c1, c2 and c3 from the definitions; the error by the law of total variance from all groups of two responses."""
    case = problem(HALF_TRAINED)
    pi, features = probabilities(case), case.policy.logit_map.features
    success = case.bandit.mean_reward
    scores = features - np.einsum("mk,mkd->md", pi, features)[:, None]
    gradients = np.einsum("mk,mk,mkd->md", pi, success, scores)
    mean = gradients.mean(axis=0)
    np.testing.assert_allclose(truth("gradient", HALF_TRAINED), mean, rtol=1e-12)
    value = (pi * success).sum(axis=1)
    assert truth("value", HALF_TRAINED) == pytest.approx(value.mean(), rel=1e-12)
    within = np.zeros(2)
    for m in range(len(pi)):
        for (a, y), (b, z) in product(product(range(pi.shape[1]), (0, 1)), repeat=2):
            chance = (
                pi[m, a] * pi[m, b] * (success[m, a] if y else 1 - success[m, a]) * (success[m, b] if z else 1 - success[m, b])
            )
            pair = (scores[m, a] - scores[m, b]) * (y - z) / 2.0
            single = scores[m, a] * (y - value[m])
            within += chance * np.array([pair @ pair, single @ single]) / len(pi)
    power = (gradients**2).sum(axis=1).mean()
    c1, c2 = power - mean @ mean, within[1] - power
    c3 = 2.0 * (within[0] - power - c2 / 2.0)
    np.testing.assert_allclose(truth("components", HALF_TRAINED), (c1, c2, c3), rtol=1e-10)
    b, g = ASKED
    assert truth("error", HALF_TRAINED) == pytest.approx(c1 / b + c2 / (b * g) + c3 / (b * g * (g - 1)), rel=1e-10)
    assert truth("group size", HALF_TRAINED) == pytest.approx(1.0 + sqrt(c3 / c1), rel=1e-10)
    assert truth("1/group size", "two-arms") == 0.0


def test_the_language_models_gradient_is_along_orthonormal_directions():
    along = directions("lm-few-shot")
    np.testing.assert_allclose(along @ along.T, np.eye(3), atol=1e-10)
    assert np.shape(truth("gradient", "lm-few-shot")) == (3,)


def test_cells_are_the_design():
    """Every factor's levels with those of all others, but for the language model's norms at the largest batch.

    At points an exact interval can be told from one that covers a point less, unless all are far from what they claim.
    """
    full = pd.DataFrame(coverage.cases(False))
    design = full[full["part"] == "design"].groupby(["problem", "target"]).size()
    assert (design.drop("lm-few-shot") == 4).all()
    assert len(design.drop("lm-few-shot")) == 30
    points = full[full["part"] == "point"].set_index(["problem", "target"])["replications"]
    wide = points.index.isin(coverage.WIDE_MISSES)
    assert (points[~wide] >= 50_000).all()
    assert (points[wide] >= 12_500).all()
    assert wide.sum() == len(coverage.WIDE_MISSES) == 4
    assert {one.target for one in CANDIDATES} == set(full["target"])


def test_limits_are_those_of_many_prompts(seed):
    """At B = 1024 the share of covering intervals is the limit; that of twice the group size is told apart."""
    replications = 2000
    for one in (one for one in CANDIDATES if one.limit is not None):
        limit, other = (np.min(one.limit(HALF_TRAINED, size, 0.95)) for size in (4, 8))
        at = np.argmin(one.limit(HALF_TRAINED, 4, 0.95))
        run = gt.coverage(
            one.function,
            problem(HALF_TRAINED),
            truth(one.target, HALF_TRAINED),
            experiment=gt.Pilot(1024, 4),
            replications=replications,
            rng=seed(3),
        )
        share, error = np.ravel(run.coverage)[at], sqrt(limit * (1.0 - limit) / replications)
        assert abs(share - limit) < 4.0 * error
        assert abs(other - limit) > 8.0 * error


def test_the_quick_table_has_every_target_and_measure(quick):
    assert {"value", "gradient", "gradient, jointly", "c1", "c2", "c3", "error", "group size"} <= set(quick["target"])
    shares = quick[quick["measure"] == "coverage"]
    assert not shares.duplicated(["part", "problem", "interval", "target", "component", "batch_size", "group_size"]).any()
    assert shares["estimate"].between(0.0, 1.0).all()
    zips = quick[quick["measure"] == "zip"]
    inside = (zips["low"] <= 0.0) & (zips["high"] >= 0.0)
    assert (inside == zips["covered"].astype(bool)).all()


def test_every_claim_names_its_point_and_has_a_control(quick):
    claims = study_of(coverage).claims(quick)
    assert {claim.statement.id for claim in claims} == {one.id for one in coverage.STATEMENTS}
    assert all("(B = 64, G = 8)" in claim.setting for claim in claims)
    for claim in claims:
        better = 1.0 if claim.statement.kind == "equality" else -1.0
        assert better * claim.control.estimate <= better * claim.evidence.estimate, claim.statement.id


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
    broken = [
        Candidate(one.name, narrowing(one.function, 0.9), one.target, one.conservative)
        for one in CANDIDATES
        if one.name == "value_clustered"
    ]
    monkeypatch.setattr(coverage, "CANDIDATES", broken)
    assert verdicts(table(study_of(coverage).cells(True))).loc["CI/value_clustered", "verdict"] == "refuted"


def test_narrowing_is_about_the_estimate_and_keeps_what_is_unbounded():
    found = gt.Interval(np.array([2.0, 1.0, np.inf]), np.ones(3), np.array([1.0, 0.0, 1.0]), np.array([4.0, np.inf, np.inf]), 0.9)
    smaller = narrowing(lambda data, level: found, 0.5)(None, 0.9)
    np.testing.assert_array_equal(smaller.low, [1.5, 0.5, 1.0])
    np.testing.assert_array_equal(smaller.high, [3.0, np.inf, np.inf])


def test_a_question_put_twice_in_a_row_is_answered_once():
    asked = []
    function = remembering(lambda data, level: asked.append((data, level)) or len(asked))
    data = np.zeros(2)
    assert [function(data, 0.9), function(data, 0.9), function(data, 0.5), function(np.zeros(2), 0.5)] == [1, 1, 2, 3]
    assert function(data, 0.5) == 4


def advice_table(coverages, widths):
    """A design of four cells in which intervals have given coverages and widths."""
    rows = []
    for name, shares in coverages.items():
        for number, share in enumerate(shares):
            key = {"part": "design", "success": "common", "target": "value", "interval": name, "level": 0.95, "component": ""}
            key |= {"problem": "p", "batch_size": 16, "group_size": 2**number, "replications": 100, "failures": 0}
            rows += [
                key | {"measure": measure, "estimate": value, "low": 0.0, "high": 1.0}
                for measure, value in (("coverage", share), ("median width", widths[name]), ("unbounded", 0.0))
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
    unsound = advice(advice_table({"short": shares["short"], "worse": [0.5] * 4}, widths | {"worse": 1.0})).set_index("interval")
    assert unsound.loc["short", "advice"] == "none is sound; nearest"
    assert choices(unsound.reset_index())["success common, B = 16"].tolist() == ["none is sound"]
