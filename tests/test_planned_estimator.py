"""The study of plans for a named estimator: its truths by other routes, what it judges, and its controls."""

from dataclasses import replace

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.plan import choose_group_size
from grpo_theory.plan.efficiency import EfficiencyChoice
from grpo_theory.plan.estimator_advice import EstimatorLaws
from simulations.plan.pilot_problems import (
    CHAINS,
    HEAVY,
    LOG_LIMITS,
    chain,
    draw_logs,
    draw_pilot,
    efficiencies,
    listed,
)
from simulations.plan.planned_estimator import (
    BY_ERROR,
    DIVIDED,
    ESTIMATORS,
    LEVEL,
    exact,
    gains_hold,
    judge,
    told_switches,
)

SIZES, BATCHES = (part.tolist() for part in LOG_LIMITS.batches())


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_chains_truth_is_that_of_its_listed_responses(name, estimator):
    """By recursion from state to state, and by enumeration of what logs are drawn from."""
    case = listed(name)
    for i in (0, 2, 6):
        found = gt.efficiency(case, case.theta, estimator, batch_size=BATCHES[i], group_size=SIZES[i])
        assert efficiencies(name, estimator)[i] == pytest.approx(found, rel=1e-9)
    assert chain(CHAINS[name]).policy.horizon == 5


def test_the_truth_of_heavy_tails_is_the_mean_of_groups_that_are_drawn():
    """By a million responses, whose groups of 4 have the power, the mean and the gradient that the quadrature has."""
    rng, size = np.random.default_rng(20261125), 4
    for name in ("rloo", "trl_grpo"):
        rollouts, _ = draw_pilot(HEAVY, 150_000, False, rng)
        rewards = rollouts.rewards.reshape(-1, size)
        scores = rollouts.known_scores.reshape(*rewards.shape, -1)
        deviation = rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4 if name == "trl_grpo" else (size - 1.0) / size
        advantages = (rewards - rewards.mean(axis=1, keepdims=True)) / deviation
        plain = (rewards - rewards.mean(axis=1, keepdims=True)) * size / (size - 1.0)
        estimates, gradients = (np.einsum("ng,ngj->nj", one, scores) / size for one in (advantages, plain))
        mean, gradient, power = estimates.mean(axis=0), gradients.mean(axis=0), (estimates**2).sum(axis=1).mean()
        batch = BATCHES[SIZES.index(size)]
        below = power / batch + (1.0 - 1.0 / batch) * mean @ mean
        assert efficiencies(HEAVY, name)[SIZES.index(size)] == pytest.approx(
            (gradient @ mean) ** 2 / (gradient @ gradient * below), rel=0.02
        )


def test_what_is_judged_is_what_the_library_says():
    (log,) = draw_logs("linear", np.random.default_rng(2), 1)
    exact = efficiencies("linear", "rloo")
    choice = choose_group_size(log, LOG_LIMITS)
    judged = judge(choice, "linear", "rloo")
    assert judged["regret"] == exact.max() / exact[choice.best] - 1.0
    assert judged["best size"] == choice.candidates[np.argmax(exact)]
    mse = [
        gt.gradient_mse(gt.gallery.problem("linear"), gt.gallery.problem("linear").theta, "rloo", batch_size=b, group_size=g)
        for b, g in zip(BATCHES, SIZES, strict=True)
    ]
    assert judged["risk"] == (mse[choice.best] / min(mse) - 1.0 <= choice.risk)
    scores = gt.plan.advise(log, LOG_LIMITS, estimator="trl_grpo").scores
    assert isinstance(scores.own, EfficiencyChoice)
    assert judge(scores.own, "linear", "trl_grpo").keys() == judged.keys()


@pytest.mark.parametrize("estimator", [BY_ERROR, DIVIDED])
def test_gains_that_are_judged_are_those_that_a_user_is_told(estimator):
    (log,) = draw_logs("graded", np.random.default_rng(3), 1)
    advice = gt.plan.advise(log, LOG_LIMITS, estimator=estimator)
    laws, chosen = EstimatorLaws(log, LOG_LIMITS, None), {}
    chosen["rloo"] = choose_group_size(log, LOG_LIMITS)
    chosen["trl_grpo"] = laws.choice("trl_grpo", LEVEL)
    told = advice.scores.by_efficiency.others
    current = exact("graded", estimator, advice.scores.choice.group_size)
    assert current == exact("graded", estimator, chosen[estimator].group_size)
    found = told_switches(laws, chosen)[estimator]
    assert [(one.name, one.group_size, one.gain.low, one.gain.high) for one in found] == [
        (one.name, one.group_size, one.gain.low, one.gain.high) for one in told
    ]
    gains = [efficiencies("graded", one.name)[SIZES.index(one.group_size)] / current - 1.0 for one in told]
    held = all(one.gain.low <= gain <= one.gain.high for one, gain in zip(told, gains, strict=True))
    assert gains_hold("graded", current, told) == held
    # One limit that fails is enough.
    missed = [replace(told[0], gain=replace(told[0].gain, low=np.float64(gains[0] + 0.1))), *told[1:]]
    assert not gains_hold("graded", current, missed)
    assert not gains_hold("graded", current / 4.0, told)
