"""The records of the trained language model: what ships, that it fits together, and what the studies read off it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

import grpo_theory as gt
from simulations.normalisation import trained_features
from simulations.normalisation.trained_features import STRIDE, linear_course
from simulations.plan import advice_on_trained_model, twin_on_trained_model
from simulations.plan.run_worlds import draw_log, problem_at_start, sampler
from simulations.runs import recorded_runs
from simulations.runs.recorded_scores import Scores, efficiency
from tools import write_trained_model as tool

DATA = gt.data.trained_model()
ADAPTERS = gt.data.trained_model("adapters")
BOTH = pytest.mark.parametrize("data", [DATA, ADAPTERS], ids=["last block", "adapters"])
QUESTIONS = gt.data.arithmetic()
TRAINED = DATA.questions[: DATA.n_trained]
ROOT = Path(__file__).resolve().parents[1]
START = DATA.courses["plain"]


@BOTH
def test_moments_of_scores_are_those_of_the_kernel_at_the_start(data):
    """The package's exact moments of the linear policy, against the recorded ones; balanced arrays have mean length 1."""
    problem, start = problem_at_start("last block" if data is DATA else "adapters"), data.courses["plain"]
    exact = gt.moments(problem, problem.theta)
    gradients = exact.prompt_gradients
    np.testing.assert_allclose(exact.value, start.success[0], atol=2e-5)
    scale = np.abs(start.gram[0]).max()
    np.testing.assert_allclose(gradients @ gradients.T, start.gram[0], atol=1e-4 * scale)
    assert np.trace(start.gram[0]) / data.n_trained == pytest.approx(len(data.provenance["scales"]), rel=1e-5)
    assert np.abs(np.roll(gradients, 1, axis=0) @ gradients.T - start.gram[0]).max() > 0.1 * scale


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo"])
@pytest.mark.parametrize("size", [2, 8, 64])
def test_efficiencies_of_records_are_the_packages(name, size):
    """By moments of scores alone, against the law of the package by enumeration."""
    problem = problem_at_start()
    scores = Scores(START.success[0], START.gram[0], START.powers[0])
    expected = gt.efficiency(problem, problem.theta, name, batch_size=128 // size, group_size=size)
    assert efficiency(scores, name, 128 // size, size) == pytest.approx(expected, rel=1e-3)
    longer = scores._replace(powers=2.0 * scores.powers)
    assert efficiency(longer, name, 128 // size, size) != pytest.approx(expected, rel=1e-3)


def test_the_linear_policy_climbs_as_the_packages_twin_does():
    """In kernel space, against the gradient of the package's problem of the same features: one first step, and a shorter one."""
    problem, step = problem_at_start(), twin_on_trained_model.step_scale()
    gradient = gt.moments(problem, problem.theta).gradient
    ((first, _),) = linear_course(DATA, [1], False, STRIDE)
    assert gt.objective(problem, problem.theta + step * gradient) == pytest.approx(first, abs=1e-7)
    assert abs(gt.objective(problem, problem.theta + 4.0 * step * gradient) - first) > 1e-3
    moved = problem.policy.log_probabilities(problem.theta + 1e-3 * gradient) - problem.policy.log_probabilities(problem.theta)
    length = np.sqrt((problem.policy.logit_map.logits(gradient) ** 2).sum(axis=1).mean())
    (_, (success, _)) = trained_features.linear_course(DATA, [0, 1], divided=False, stride=1e-3 * length)
    right = np.eye(10)[QUESTIONS.answers[TRAINED]]
    expected = (np.exp(np.log(DATA.probabilities) + moved) * right).sum(axis=1).mean()
    assert success == pytest.approx(expected, abs=1e-6)
    assert success > START.success[0].mean() + 1e-5


@pytest.fixture(scope="module")
def table():
    """The table of the study of group sizes."""
    return tool.study()


@pytest.fixture(scope="module")
def leads(table):
    """Leads in points, by what learns, runs, estimator, the two that are compared, and updates."""
    own = table[table["quantity"] == "lead"].set_index(["trained", "runs", "estimator", "first", "second", "update"]).sort_index()
    numbers = ["estimate", "standard_error", "low", "high", "low_at_once", "high_at_once"]
    return own.assign(**{name: 100.0 * own[name] for name in numbers})


def test_arms_have_the_seeds_of_all():
    """Rates and sizes that some seeds lack are left out: the last block's groups of 2, 8 and 32, and its smallest rate."""
    arms = recorded_runs.arms_of(DATA.runs)
    assert {arm for _, arm in arms} == {4, 16, 64, *recorded_runs.RATIOS.values()}
    assert arms["grpo", 4].shape == (2, 5, len(DATA.updates))
    (own,) = (run for run in DATA.runs if run.arm[:4] == ("grpo", "Adam", 4, 4e-4) and run.seed == 3)
    np.testing.assert_array_equal(arms["grpo", 4][1, 3], own.success)


def test_without_a_choice_a_lead_is_that_of_paired_seeds(leads):
    """The last block's uses of ratios have one rate: Student's limits of the seeds' differences, once and for all leads."""
    arms = recorded_runs.arms_of(DATA.runs)
    own = 100.0 * (arms["dr_grpo", "PPO's clip"] - arms["dr_grpo", "no ratio"])[0, :, -1]
    row, error = leads.loc["last block", "usual", "dr_grpo", "PPO's clip", "no ratio", 96], own.std(ddof=1) / np.sqrt(5.0)
    assert (row["estimate"], row["standard_error"]) == pytest.approx((own.mean(), error))
    count = int((leads.index.get_level_values("trained") == "last block").sum())
    for name, tail in (("high", 0.025), ("high_at_once", 0.05 / 2 / 2 / count)):
        assert row[name] == pytest.approx(own.mean() + stdtrit(4, 1.0 - tail) * error)
    assert not row["at_end"]


def test_the_fall_of_a_lead_is_what_it_loses(leads):
    falls = leads.loc["adapters", "longer"].xs("the lead then", level="second")["estimate"].droplevel("first")
    lead = leads.loc["adapters", "longer"].xs("groups of 64", level="second")["estimate"].droplevel("first")
    for (estimator, update), fall in falls.items():
        assert fall == pytest.approx(lead[estimator, 96] - lead[estimator, update])


def test_the_tables_of_the_page_are_those_of_the_study(table):
    page = (ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8")
    assert tool.with_tables(page, table) == page
    assert tool.with_tables(page, table.assign(estimate=table["estimate"] / 2.0)) != page


def test_a_log_of_the_start_has_the_recorded_success():
    case = problem_at_start()
    log = draw_log(sampler(case, case.theta), np.arange(40), 2000, np.random.default_rng(1))
    exact = START.success[0]
    z = (log.rewards.reshape(40, 2000).mean(axis=1) - exact) / np.sqrt(exact * (1.0 - exact) / 2000)
    assert np.abs(z).max() < 4.9
    assert log.known_scores.shape[1] == 128


def test_the_step_loses_what_the_exact_efficiencies_say():
    told, case = {"planned": np.array([4, 64])}, {"estimator": "grpo", "trained": "last block"}
    rows = pd.DataFrame(advice_on_trained_model.losses(told, **case))
    start = rows[(rows["place"] == "start") & (rows["quantity"] == "efficiency lost")].set_index("arm")["estimate"]
    misled = [advice_on_trained_model.misled(told, place="start", larger=larger, **case).estimate for larger in (1, 4)]
    assert misled == [0.5, 1.0]
    assert start["always 4"] == 0.0
    assert start["planned"] == pytest.approx(start["always 64"] / 2.0)
    assert start["always 64"] > 0.5
