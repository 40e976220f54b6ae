"""SmolLM2 as a judge of the planner and of twins: what a log of its start is, and what is read off the records."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from simulations.normalisation.trained_features import STRIDE, linear_course
from simulations.plan import advice_on_trained_model, twin_on_trained_model
from simulations.plan.advice_on_trained_model import ends_of, lost
from simulations.plan.run_worlds import draw_log, problem_at_start, sampler

DATA = gt.data.trained_model()
START = DATA.courses["plain"]


@pytest.mark.parametrize("trained", ["last block", "adapters"])
def test_the_problem_of_the_start_has_the_recorded_success_and_gradients(trained):
    case, start = problem_at_start(trained), gt.data.trained_model(trained).courses["plain"]
    exact = gt.moments(case, case.theta)
    np.testing.assert_allclose(exact.value, start.success[0], atol=2e-5)
    gram = exact.prompt_gradients @ exact.prompt_gradients.T
    np.testing.assert_allclose(gram, start.gram[0], atol=1e-4 * np.abs(start.gram[0]).max())


def test_a_log_of_the_start_has_the_recorded_success():
    case = problem_at_start()
    log = draw_log(sampler(case, case.theta), np.arange(40), 2000, np.random.default_rng(1))
    exact = START.success[0]
    z = (log.rewards.reshape(40, 2000).mean(axis=1) - exact) / np.sqrt(exact * (1.0 - exact) / 2000)
    assert np.abs(z).max() < 4.9
    assert log.known_scores.shape[1] == 128


def test_ends_are_of_the_seeds_that_all_sizes_have():
    ends = ends_of(DATA, "grpo", 96)
    assert {size: values.shape for size, values in ends.items()} == dict.fromkeys((2, 4, 8, 16, 32, 64), (2, 3))
    for size, values in ends.items():
        runs = [run for run in DATA.runs if run.seed < 3 and run.arm[:3] == ("grpo", "Adam", size) and run.arm.rate > 1e-4]
        assert sorted(values.ravel()) == sorted(run.success[-1] for run in runs)
    adapted = ends_of(gt.data.trained_model("adapters"), "grpo", 96)
    assert {values.shape for values in adapted.values()} == {(4, 10)}
    assert ends_of(DATA, "grpo", 12)[4].mean() < ends[4].mean() - 0.1


def test_losses_count_seeds_and_logs():
    """One rate and no choice: seeds' paired leads, and the spread of what logs recommend."""
    ends = {size: np.array([values]) for size, values in {2: [0.50, 0.52, 0.54], 4: [0.59, 0.62, 0.65]}.items()}
    one = lost(ends, np.array([2]), 4)
    assert (one["estimate"], one["standard_error"]) == pytest.approx((0.1, 0.01 / np.sqrt(3.0)))
    assert one["high"] - one["estimate"] == pytest.approx(4.3027 * 0.01 / np.sqrt(3.0), rel=1e-4)
    both = lost(ends, np.array([2, 4, 4, 4]))
    assert both["estimate"] == pytest.approx(-0.05), "three of four logs recommend the better of two sizes"
    seeds, logs = (0.5 * 0.01) ** 2 / 3.0, 0.1**2 / 4.0
    assert both["standard_error"] ** 2 == pytest.approx(seeds + logs)
    assert lost(ends, np.array([4]), 4)["standard_error"] == 0.0


def test_the_step_loses_what_the_exact_efficiencies_say():
    told, case = {"planned": np.array([4, 64])}, {"estimator": "grpo", "trained": "last block"}
    rows = pd.DataFrame(advice_on_trained_model.losses(told, "step", updates=1, **case))
    start = rows[(rows["place"] == "start") & (rows["quantity"] == "efficiency lost")].set_index("arm")["estimate"]
    misled = [advice_on_trained_model.misled(told, place="start", larger=larger, **case).estimate for larger in (1, 4)]
    assert misled == [0.5, 1.0]
    assert start["always 4"] == 0.0
    assert start["planned"] == pytest.approx(start["always 64"] / 2.0)
    assert start["always 64"] > 0.5


def test_the_twins_step_is_that_of_the_records():
    """At a hundredth of the step the linear policy of the start moves as the recorded ascent begins."""
    case, step = problem_at_start(), twin_on_trained_model.step_scale()
    theta = case.theta + step * gt.moments(case, case.theta).gradient
    ((success, _),) = linear_course(DATA, [1], False, STRIDE)
    assert gt.objective(case, theta) == pytest.approx(success, abs=1e-7)
    assert abs(gt.objective(case, case.theta + 4.0 * (theta - case.theta)) - success) > 1e-3
