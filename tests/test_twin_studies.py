"""The studies of twins and of advice in whole runs: what they draw and train, what they count, and their pages' numbers."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from simulations.plan import advice_regret, twin_reach
from simulations.plan.run_worlds import (
    CHAIN_OF_TWELVE,
    LINEAR,
    WALK,
    courses,
    draw_log,
    plan,
    problem,
    sampler,
)

TOP = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["network of 3", LINEAR, WALK, CHAIN_OF_TWELVE])
def test_logs_have_the_problems_success_and_gradients(name):
    """Means of rewards, and of reward times sketch, against the exact ones, prompt by prompt."""
    case = problem(name)
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
    case, seed = problem(name), np.random.SeedSequence(7)
    success, ends = courses(case, np.tile(case.theta, (5, 1)), "rloo", 0.5, (8, 4), (2, 6), seed)
    runs = gt.simulate_training(
        case,
        case.theta,
        "rloo",
        gt.Constant(0.5),
        batch_size=8,
        group_size=4,
        steps=6,
        replications=5,
        rng=seed,
        checkpoints=(2, 6),
    )
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


def trained(means, seed=1):
    """The chunk of a group size whose draws end alike, with the best rate inside: (draws, rates, C)."""
    runs = np.array(means) - 0.1 * np.abs(np.arange(3) - 1)[:, None] + np.zeros((4, 1, 1))
    return (runs + 0.001 * np.random.default_rng(seed).normal(size=runs.shape)).tolist()


def test_losses_are_those_of_the_sizes_that_are_recommended():
    settings = {"problem": LINEAR, "estimator": "rloo", "draws": 4, "sizes": [4, 8, 16, 64]}
    asked = {"planned": [4, 4, 4, 8], "permuted": [8, 8, 8, 8]}
    chunks = [trained(means, seed) for seed, means in enumerate([[0.6, 0.7], [0.5, 0.8], [0.4, 0.6], [0.2, 0.2]])] + [asked]
    table = pd.DataFrame(advice_regret.rows(settings, chunks))
    lost = table[table["quantity"] == "lost"].set_index(["updates", "against", "arm"])
    value = lost["estimate"]
    assert value[16, "best", "planned"] == pytest.approx(0.25 * 0.1, abs=2e-3)
    assert value[64, "best", "planned"] == pytest.approx(0.75 * 0.1, abs=2e-3)
    assert value[64, "best", "always 16"] == pytest.approx(0.2, abs=2e-3)
    assert value[64, "always 16", "planned"] == pytest.approx(0.6 - 0.725, abs=2e-3)
    assert value[64, "always 4", "planned"] == pytest.approx(-0.025, abs=2e-3)
    # Groups of 16 where 4 was recommended, and of 64, which were trained next, where 8 was.
    assert value[64, "best", "control"] == pytest.approx(0.8 - 0.75 * 0.6 - 0.25 * 0.2, abs=2e-3)
    assert value[64, "best", "permuted"] == pytest.approx(0.0, abs=2e-3)
    # Four draws, whose pilots led to 0.7, 0.7, 0.7 and 0.8.
    assert lost.loc[(64, "best", "planned"), "standard_error"] == pytest.approx(0.05 / 2.0, rel=0.05)
    assert lost.loc[(64, "always 8", "always 8"), "standard_error"] == 0.0
    success = table[table["quantity"] == "success"].set_index(["updates", "arm"])
    assert (success.loc[(64, "best"), "size"], success.loc[(64, "best"), "estimate"]) == (8, pytest.approx(0.8, abs=2e-3))
    assert success.loc[(64, "always 4"), "share"] == 0.75
    assert not table["at_end"].dropna().any()


@pytest.mark.parametrize("estimator", ["rloo", "grpo"])
def test_the_study_asks_the_planner_that_users_ask(estimator):
    case = problem("network of 3")
    log = draw_log(sampler(case, case.theta), np.arange(40), 8, np.random.default_rng(1))
    limits = gt.plan.Limits(budget=256, max_group_size=64)
    advice = gt.plan.advise(log, limits, estimator=estimator)
    assert advice.scores.choice.group_size == plan(log, estimator, limits)


def load_tool():
    spec = importlib.util.spec_from_file_location("write_planner", TOP / "tools" / "write_planner.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(
    ("page", "table", "made", "marks"),
    [
        ("planner.md", "advice_regret.csv", "runs_table", "RUNS"),
        ("planner.md", "trained_advice.csv", "trained_tables", "TRAINED"),
        ("twin.md", "twin.csv", "twin_table", "TWIN"),
        ("twin.md", "trained_twin.csv", "trained_twin_table", "TRAINED"),
    ],
)
def test_the_pages_numbers_are_those_of_the_table(page, table, made, marks):
    tool, text = load_tool(), (TOP / "docs" / page).read_text(encoding="utf-8")
    kept = pd.read_csv(TOP / "docs" / table)
    write, between = getattr(tool, made), getattr(tool, marks)
    assert tool.with_tables(text, write(kept), between) == text
    assert tool.with_tables(text, write(kept.assign(estimate=kept["estimate"] / 2.0)), between) != text
