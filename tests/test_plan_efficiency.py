"""The plan by efficiency: its law, its choice and its signal against exact efficiencies, today's constants, and a control."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.intervals.u_statistics import prompt_gradients
from grpo_theory.plan import Limits
from grpo_theory.plan.efficiency import StepLaw, choose_by_efficiency, efficiency_signal, mean_of, product_of
from grpo_theory.plan.error_constants import pilot_terms
from grpo_theory.plan.subgroups import RewardClasses

LIMITS = Limits(budget=256)
SIZES = np.arange(2, 9)
BATCHES = np.array([LIMITS.prompts(int(size)) for size in SIZES])
SURE = 1.0 - 1e-4


def draw(name, prompts, seed):
    """Draw a log with eight responses to each prompt."""
    pilot = gt.Pilot(prompts, 8)
    return pilot.take(pilot.sample(gt.gallery.problem(name), np.random.default_rng(seed), 1), 0)


def law_of(rollouts, name):
    return StepLaw.of_subgroups(RewardClasses.of(rollouts), prompt_gradients(rollouts), find(name), SIZES)


def exact(name, estimator):
    """Return the exact efficiencies at all sizes."""
    problem = gt.gallery.problem(name)
    batches = zip(BATCHES.tolist(), SIZES.tolist(), strict=True)
    return np.array([gt.efficiency(problem, problem.theta, estimator, batch_size=b, group_size=g) for b, g in batches])


def covered(law, truth):
    """Return whether the limits of the signal hold the exact one, at each size."""
    found = [efficiency_signal(law, i, int(BATCHES[i]), SURE, None) for i in range(SIZES.size)]
    return np.array([interval.covers(one / (1.0 - one)) for interval, one in zip(found, truth, strict=True)])


@pytest.fixture(scope="module")
def log():
    return draw("linear", 3000, 20261125)


@pytest.mark.parametrize("name", ["rloo", "trl_grpo", "nemo_rl", "max_rl"])
def test_limits_hold_the_exact_efficiencies_and_losses(name, log):
    truth, law = exact("linear", name), law_of(log, name)
    assert covered(law, truth).all()
    choice = choose_by_efficiency(law, BATCHES, SURE)
    best = int(np.argmax(truth))
    assert choice.candidates[best]
    assert choice.loss.covers(truth[best] / truth - 1.0).all()
    assert choice.efficiency == pytest.approx(truth, rel=0.2)
    assert truth[best] / truth[choice.best] - 1.0 <= min(choice.risk, 0.02)


def test_another_estimators_law_is_refuted(log):
    """A log of 3,000 prompts tells MaxRL from RLOO: the law of one does not hold the other's losses, nor its signal."""
    for name, other in (("rloo", "max_rl"), ("max_rl", "rloo")):
        truth = exact("linear", other)
        loss = truth.max() / truth - 1.0
        assert not choose_by_efficiency(law_of(log, name), BATCHES, SURE).loss.covers(loss).all()


@pytest.mark.parametrize("name", ["rloo", "max_rl"])
def test_gains_of_another_estimator_hold_the_exact_ones(name, log):
    problem = gt.gallery.problem("linear")
    scores = gt.plan.advise(log, LIMITS, estimator=name, level=SURE).scores

    def truth(one, estimator):
        sizes = {"batch_size": one.batch_size, "group_size": one.group_size}
        return gt.efficiency(problem, problem.theta, estimator, **sizes)

    gains = {one.name: (one.gain, truth(one, one.name) / truth(scores.choice, name) - 1.0) for one in scores.by_efficiency.others}
    assert len(gains) == 3
    assert all(gain.covers(exact) for gain, exact in gains.values())
    other = "max_rl" if name == "rloo" else "rloo"
    assert not gains[other][0].covers(0.0)


def test_of_rloo_the_signal_is_that_of_the_constants(log):
    law = StepLaw.of_unbiased(pilot_terms(log), SIZES)
    for i, (batch, size) in enumerate(zip(BATCHES.tolist(), SIZES.tolist(), strict=True)):
        for width in (None, 64):
            found = efficiency_signal(law, i, batch, 0.95, width)
            expected = gt.plan.signal_to_noise(log, batch, size, sketch_width=width)
            for part in ("estimate", "standard_error", "low", "high"):
                assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-9)


def test_of_rloo_the_best_size_is_that_of_the_squared_error(log):
    found = gt.plan.choose_group_size(log, LIMITS)
    sizes = found.group_sizes
    law = StepLaw.of_unbiased(pilot_terms(log), sizes)
    choice = choose_by_efficiency(law, found.batch_sizes)
    assert choice.group_size == found.group_size
    assert set(sizes[found.candidates]) & set(sizes[choice.candidates])
    by_subgroups = choose_by_efficiency(law_of(log, "rloo"), BATCHES)
    assert by_subgroups.group_size == found.group_size
    assert by_subgroups.efficiency == pytest.approx(choice.efficiency[: SIZES.size], rel=0.02)


def test_a_factor_on_the_advantages_changes_nothing(log):
    """Dr. GRPO's estimate is RLOO's times 1 - 1/G, which the learning rate undoes."""
    one, other = (choose_by_efficiency(law_of(log, name), BATCHES) for name in ("rloo", "dr_grpo"))
    assert other.best == one.best
    assert (other.candidates == one.candidates).all()
    for part in ("estimate", "low", "high"):
        assert getattr(other.loss, part) == pytest.approx(getattr(one.loss, part), rel=1e-9, abs=1e-12)
    assert other.efficiency == pytest.approx(one.efficiency, rel=1e-9)


def test_influences_are_those_of_leaving_out_one_prompt():
    rng = np.random.default_rng(5)
    first, second, size = rng.normal(size=(12, 3)), rng.normal(size=(12, 3)), 12
    found = product_of(first, second)
    pairs = first @ second.T
    assert found.values == pytest.approx((pairs.sum() - np.trace(pairs)) / (size * (size - 1.0)))
    without = np.array([product_of(np.delete(first, b, 0), np.delete(second, b, 0)).values for b in range(size)])
    assert found.influences == pytest.approx((size - 1.0) * (without.mean() - without))
    terms = rng.normal(size=(2, 12))
    without = np.stack([np.delete(terms, b, 1).mean(axis=1) for b in range(size)], axis=1)
    assert mean_of(terms).influences == pytest.approx((size - 1.0) * (without.mean(axis=1, keepdims=True) - without))


def test_more_prompts_narrow_the_limits_as_is_said():
    small = choose_by_efficiency(law_of(draw("linear", 100, 1), "trl_grpo"), BATCHES)
    needed = small.prompts_needed(0.01)
    assert needed is not None
    assert needed > 100
    assert small.prompts_needed(0.1) <= needed
    assert small.prompts_needed(1e9 if np.isinf(small.risk) else small.risk) == 100 or np.isinf(small.risk)


def test_a_log_without_signal_leaves_every_size_open():
    rng = np.random.default_rng(7)
    rollouts = gt.Rollouts(rng.integers(0, 2, size=(40, 8)).astype(float), rng.normal(size=(40, 8, 5)))
    choice = choose_by_efficiency(law_of(rollouts, "trl_grpo"), BATCHES)
    assert choice.candidates.all()
    assert choice.risk == np.inf
    assert efficiency_signal(law_of(rollouts, "trl_grpo"), 0, 128, 0.95, None).low == 0.0


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_few_prompts_with_whole_numbered_sketches_divide_by_nothing():
    """The estimate of a step's mean square is then often 0 or less: its likely value takes its place."""
    rng = np.random.default_rng(0)
    advised = 0
    for _ in range(25):
        prompts = np.repeat(np.arange(5), 4)
        rewards = (rng.random(20) < 0.4).astype(float)
        sketches = rng.integers(-1, 2, size=(20, 2)) * rewards[:, None]
        if np.ptp(rewards) == 0.0 or not sketches.any():
            continue
        advice = gt.plan.advise(gt.RaggedRollouts(prompts, rewards, sketches), 64, estimator="trl_grpo")
        assert np.isfinite(advice.scores.by_efficiency.choice.efficiency).all()
        advised += 1
    assert advised >= 20
