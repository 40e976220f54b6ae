"""The study of the planner's group size for a run: what is left out, what is drawn, what is counted and what is claimed."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.plan import choose_group_size
from grpo_theory.plan.efficiency import EstimatorLaws
from simulations.best_rate import lead
from simulations.plan import advice_regret, pilot_problems, twin_reach
from simulations.plan.advice_regret import lost, mean_over_kinds
from simulations.plan.planned_estimator import BY_ERROR, DIVIDED, LEVEL, exact, gains_hold, told_switches
from simulations.plan.run_worlds import CHAIN_OF_TWELVE, LINEAR, WALK, courses, draw_log, plan, sampler
from simulations.plan.run_worlds import problem as world_of

SIZES, BEST = (2, 4, 8, 16, 32, 64), 1
"""Sizes, and the place of 4, which is best in the world that is made up here: an octave from it costs two points."""


def world(seed, spread=0.001, draws=48):
    """Success in draws of a made up world, shape (rates, S, draws), which differ by ten points and have a best rate inside."""
    rng, rates = np.random.default_rng(seed), 0.1 * np.abs(np.arange(5) - 2)
    means = 0.5 - 0.02 * np.abs(np.log2(np.array(SIZES) / 4)) - rates[:, None]
    return means[..., None] + 0.1 * rng.normal(size=draws) + spread * rng.normal(size=(*means.shape, draws))


def test_the_mean_over_kinds_has_the_error_of_independent_draws():
    table = pd.DataFrame({"estimate": [0.01, 0.03], "standard_error": [0.03, 0.04], "replications": 64})
    found = mean_over_kinds(table, 0.02)
    assert (found.estimate, found.prediction, found.standard_error) == pytest.approx((0.02, 0.02, 0.025))
    # Satterthwaite: 0.0025^2 / ((0.0009^2 + 0.0016^2) / 63) = 116.8.
    assert found.replications == 117
    assert mean_over_kinds(table.assign(standard_error=0.03), 0.02).replications == 127


def test_what_is_lost_is_told_from_the_best_size_in_hindsight():
    found = [lost(world(1), np.full(48, place)) for place in range(len(SIZES))]
    assert [row["estimate"] for row in found] == pytest.approx([0.02, 0.0, 0.02, 0.04, 0.06, 0.08], abs=1e-3)
    assert max(row["standard_error"] for row in found) < 3e-4, "draws differ by ten points, and not their leads"
    assert not any(row["at_end"] for row in found), "the best rate is inside, although the best size is not"
    assert lost(world(1)[:3], np.full(48, BEST))["at_end"]


def test_a_choice_is_one_arm_with_one_rate_whatever_its_size_by_draw():
    values, places = world(1), np.random.default_rng(5).integers(0, len(SIZES), 48)
    found = lost(values, places, BEST)
    own = values[:, places, np.arange(48)]
    assert found == lead([values[:, BEST], own], (1.0, -1.0))
    assert lost(values, places, 0) == lead([values[:, 0], own], (1.0, -1.0)), "against a size that is not the best"
    assert found["estimate"] == pytest.approx(0.02 * np.abs(places - BEST).mean(), abs=1e-3)


@pytest.mark.parametrize("name", pilot_problems.NAMES)
def test_the_truth_is_the_enumerated_error_of_every_batch(name):
    exact, case = pilot_problems.truth(pilot_problems.constants(name)), pilot_problems.problem(name)
    for size in (2, exact.group_size, pilot_problems.ASKED, 64):
        enumerated = gt.gradient_mse(case, case.theta, "rloo", batch_size=pilot_problems.LIMITS.prompts(size), group_size=size)
        assert exact.mse.estimate[exact.at(size)] == pytest.approx(enumerated, rel=1e-8)
    assert exact.mse.estimate.argmin() == exact.best


GROUP_SIZES, BATCHES = (part.tolist() for part in pilot_problems.LOG_LIMITS.batches())


@pytest.mark.parametrize("name", pilot_problems.CHAINS)
@pytest.mark.parametrize("estimator", ["rloo", "trl_grpo"])
def test_a_chains_truth_is_that_of_its_listed_responses(name, estimator):
    """By recursion from state to state, and by enumeration of what logs are drawn from."""
    case = pilot_problems.listed(name)
    for i in (0, 2, 6):
        found = gt.efficiency(case, case.theta, estimator, batch_size=BATCHES[i], group_size=GROUP_SIZES[i])
        assert pilot_problems.efficiencies(name, estimator)[i] == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("estimator", [BY_ERROR, DIVIDED])
def test_gains_that_are_judged_are_those_that_a_user_is_told(estimator):
    (log,) = pilot_problems.draw_logs("graded", np.random.default_rng(3), 1)
    advice = gt.plan.advise(log, pilot_problems.LOG_LIMITS, estimator=estimator)
    laws = EstimatorLaws(log, pilot_problems.LOG_LIMITS, None)
    chosen = {
        "rloo": choose_group_size(log, pilot_problems.LOG_LIMITS),
        "trl_grpo": laws.choice(gt.estimators()["trl_grpo"], LEVEL),
    }
    told, size = advice.scores.others, advice.scores.choice.group_size
    assert size == chosen[estimator].group_size
    found = [(one.name, one.group_size, one.gain.low, one.gain.high) for one in told_switches(laws, chosen)[estimator]]
    assert found == [(one.name, one.group_size, one.gain.low, one.gain.high) for one in told]
    current = exact("graded", estimator, size)
    gains = [pilot_problems.efficiencies("graded", one.name)[GROUP_SIZES.index(one.group_size)] / current - 1.0 for one in told]
    held = all(one.gain.low <= gain <= one.gain.high for one, gain in zip(told, gains, strict=True))
    assert gains_hold("graded", current, told) == held
    # One limit that fails is enough.
    missed = [replace(told[0], gain=replace(told[0].gain, low=np.float64(gains[0] + 0.1))), *told[1:]]
    assert not gains_hold("graded", current, missed)
    assert not gains_hold("graded", current / 4.0, told)


@pytest.mark.parametrize("name", ["network of 3", LINEAR, WALK, CHAIN_OF_TWELVE])
def test_logs_have_the_problems_success_and_gradients(name):
    """Means of rewards, and of reward times sketch, against the exact ones, prompt by prompt."""
    case = world_of(name)
    prompts, size = np.arange(case.policy.n_prompts), 1500
    log = draw_log(sampler(case, case.theta), prompts, size, np.random.default_rng(4))
    exact = gt.moments(case, case.theta)
    rewards = log.rewards.reshape(prompts.size, size)
    z = (rewards.mean(axis=1) - exact.value) / np.sqrt(exact.value * (1.0 - exact.value) / size)
    assert np.abs(z).max() < 4.9
    products = rewards[..., None] * log.scores.reshape(prompts.size, size, -1)
    spread = products.std(axis=1) / np.sqrt(size)
    # Means of rare products are not normal: prompts with too few successes are left out.
    seen = (spread > 1e-9) & (exact.value * size > 100.0)[:, None]
    off = (products.mean(axis=1) - exact.prompt_gradients)[seen] / spread[seen]
    assert np.abs(off).max() < 4.9
    assert np.abs(exact.prompt_gradients[seen] / spread[seen]).max() > 10.0


@pytest.mark.parametrize("name", ["network of 3", LINEAR, CHAIN_OF_TWELVE])
def test_courses_are_the_packages_training_runs(name):
    case, seed = world_of(name), np.random.SeedSequence(7)
    success, ends = courses(case, np.tile(case.theta, (5, 1)), "rloo", 0.5, (8, 4), (2, 6), seed)
    how = {"batch_size": 8, "group_size": 4, "steps": 6, "replications": 5, "rng": seed, "checkpoints": (2, 6)}
    runs = gt.simulate_training(case, case.theta, "rloo", gt.Constant(0.5), **how)
    np.testing.assert_allclose(success, runs.objectives, rtol=1e-12)
    np.testing.assert_array_equal(ends, runs.theta)


def test_misses_are_counted_log_by_log():
    real = np.repeat([[0.5], [0.7]], 6, axis=1)
    found = {"real": real, "twin": np.full((2, 6), 0.6), "control": np.full((2, 6), 0.9)}
    missed = pd.DataFrame(twin_reach.success(found)).query("quantity == 'miss'").set_index(["arm", "ahead"])
    assert missed.loc[("twin", 32), "estimate"] == pytest.approx(0.1)
    assert missed.loc[("twin", 32), "standard_error"] == pytest.approx(0.0, abs=1e-12)
    (sides,) = twin_reach.reach(found, 8, arm="control").values()
    assert sides == ((pytest.approx(0.3), pytest.approx(0.1), 2), 0.03)


def test_losses_are_those_of_the_sizes_that_are_recommended():
    """Of four draws that end alike, up to a thousandth, and have the best rate inside; at 16 updates and at 64."""
    rng, settings = np.random.default_rng(1), {"problem": LINEAR, "estimator": "rloo", "draws": 4}
    asked = {"planned": [4, 4, 4, 8], "permuted": [8, 8, 8, 8]}
    rates = 0.1 * np.abs(np.arange(3) - 1)[:, None]
    ends = [[0.6, 0.7], [0.5, 0.8], [0.4, 0.6], [0.2, 0.2]]
    chunks = [(own - rates + 0.001 * rng.normal(size=(4, 3, 2))).tolist() for own in np.array(ends)]
    table = pd.DataFrame(advice_regret.rows(settings, [*chunks, asked]))
    lost = table[table["quantity"] == "lost"].set_index(["updates", "against", "arm"])
    for where, expected in {
        (16, "best", "planned"): 0.25 * 0.1,
        (64, "best", "planned"): 0.75 * 0.1,
        (64, "always 16", "planned"): 0.6 - 0.725,
        # Groups of 16 where 4 was recommended, and of 64, which were trained next, where 8 was.
        (64, "best", "control"): 0.8 - 0.75 * 0.6 - 0.25 * 0.2,
        (64, "best", "permuted"): 0.0,
    }.items():
        assert lost.loc[where, "estimate"] == pytest.approx(expected, abs=2e-3), where
    # Four draws, whose pilots led to 0.7, 0.7, 0.7 and 0.8.
    assert lost.loc[(64, "best", "planned"), "standard_error"] == pytest.approx(0.05 / 2.0, rel=0.05)


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
def test_the_study_asks_the_planner_that_users_ask(estimator):
    case = world_of("network of 3")
    log = draw_log(sampler(case, case.theta), np.arange(40), 8, np.random.default_rng(1))
    limits = gt.plan.Limits(budget=256, max_group_size=64)
    advice = gt.plan.advise(log, limits, estimator=estimator)
    assert advice.scores.choice.group_size == plan(log, estimator, limits)


WRITTEN = """
planner planner_table PLANNER planner
twin twin_table TWIN twin
runs long_table LONG long_runs
three_questions clip_table CLIPS long_clips
twin trained_twin_table TRAINED trained_twin
""".strip()
"""The pages, and the tables that tools/write_planner.py puts between their marks."""


@pytest.mark.parametrize("line", WRITTEN.split("\n"))
def test_the_pages_numbers_are_those_of_the_tables(line, monkeypatch):
    (page, made, marks, *tables), docs = line.split(), Path(__file__).resolve().parents[1] / "docs"
    monkeypatch.syspath_prepend(docs.parent / "tools")
    tool, text = importlib.import_module("write_planner"), (docs / f"{page}.md").read_text(encoding="utf-8")
    found = getattr(tool, made)(*(pd.read_csv(docs / f"{table}.csv") for table in tables))
    assert tool.with_tables(text, found, getattr(tool, marks)) == text
