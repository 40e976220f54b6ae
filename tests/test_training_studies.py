"""The studies of the group size: the control variate, and verdicts that follow the evidence."""

from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation.kernel import Batch
from grpo_theory.exact import directional_derivatives
from simulations.seeds import child_seed
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import random_problem
from simulations.training import passes
from simulations.training.cases import CASE_AT, case_law, case_problem, case_steps
from simulations.training.contests import ARMS, behind, updates_to_level
from simulations.training.controlled import controlled, controlled_objectives, guide
from simulations.training.learned_time import ARMS as LEARNED_ARMS
from simulations.training.passes import CLIP, GROUP_SIZE, NONE, success_of

FAR_CASE = CASE_AT["kl-linear", "Constant(2)"]


def test_the_control_has_mean_zero_and_takes_most_of_the_variance(seed):
    """|z| < 4.9; the drift that it subtracts is hundreds of standard errors, so an error of some percent in it would show."""
    problem, steps, runs = case_problem(FAR_CASE), case_steps(FAR_CASE, 6), 512
    laws = [case_law(FAR_CASE, n) for n in (3, 6)]
    how = {"budget": 256, "runs": runs, "seed": np.random.SeedSequence(seed(1))}
    plain, parts = controlled_objectives(problem, [guide(law) for law in laws], steps, [2, 4, 4, 8, 2, 4], **how)
    for part in parts:
        error = part.std(axis=0) / np.sqrt(runs)
        assert (np.abs(part.mean(axis=0)) < 4.9 * error).all()
    once, twice, thrice = plain - parts[0], controlled(plain, parts[:2]), controlled(plain, parts)
    assert (once.var(axis=0) < 0.1 * plain.var(axis=0)).all()
    assert (twice.var(axis=0) < 0.7 * once.var(axis=0)).all()
    assert (thrice.var(axis=0) < 0.2 * twice.var(axis=0)).all()
    drift = sum(
        step * directional_derivatives(problem, theta, slope[None])[0]
        for step, theta, slope in zip(steps, laws[1].path, laws[1].slopes, strict=False)
    )
    assert 0.05 * drift > 4.9 * parts[0].std(axis=0)[1] / np.sqrt(runs)


def test_the_control_does_no_harm_where_it_says_nothing_and_moves_no_mean(seed):
    """Its multiple comes from the other half of the runs: noise of its own loses all weight, a sign turned round takes -1.

    With the multiple of the same runs the mean of few of them is off: by 0.32 with 8 runs of skewed data.
    """
    rng = np.random.default_rng(seed(2))
    values, control = rng.standard_normal((2, 4000, 1))
    zero = np.zeros_like(values)
    assert controlled(values, np.stack([zero, zero, zero])).var() == pytest.approx(values.var())
    assert controlled(values, np.stack([zero, 10.0 * control])).var() < 1.02 * values.var()
    assert controlled(values - control, np.stack([zero, -control, zero])).var() == pytest.approx(values.var(), rel=0.02)
    noise = rng.standard_normal((100_000, 8, 1))
    skewed, control = noise**2 - 1.0, noise * np.abs(noise)
    means = controlled(skewed, np.stack([np.zeros_like(noise), control])).mean(axis=(-2, -1))
    assert abs(means.mean()) < 4.9 * means.std() / np.sqrt(100_000)
    centred = control - control.mean(axis=1, keepdims=True)
    share = (centred * skewed).sum(axis=1, keepdims=True) / (centred**2).sum(axis=1, keepdims=True)
    assert (skewed - share * control).mean() < -0.25


def test_plain_objectives_are_those_of_ordinary_training():
    problem, steps, seed = case_problem(FAR_CASE), case_steps(FAR_CASE, 1), np.random.SeedSequence(5)
    plain, _ = controlled_objectives(problem, [guide(case_law(FAR_CASE, 1))], steps, [4], budget=64, runs=8, seed=seed)
    how = {"batch_size": 16, "group_size": 4, "steps": 1, "replications": 8, "rng": child_seed(seed, 0)}
    runs = gt.simulate_training(problem, problem.theta, "rloo", steps, **how)
    np.testing.assert_allclose(plain, runs.objectives, rtol=1e-14)


def test_times_are_interpolated_and_runs_that_fail_count_as_all_updates():
    objectives = [[0.2, 0.6, 0.1], [0.2, 0.2, 0.6], [0.2, 0.3, 0.4], [0.2, 0.5, np.nan], [0.2, np.nan, np.nan], [0.5, 0.1, 0.6]]
    found = updates_to_level(np.array(objectives), np.array([0, 4, 12]), 0.5)
    np.testing.assert_allclose(found, [3.0, 10.0, 12.0, 4.0, 12.0, 0.0])


def test_an_arm_is_behind_by_its_time_less_the_allowed_one_of_the_rival_each_at_its_best_step():
    noise = np.random.default_rng(0).normal(size=(1, 64))
    arm, rival = (noise + np.reshape(means, (3, 1)) for means in ([70.0, 50.0, 80.0], [40.0, 60.0, 90.0]))
    found = behind(arm, rival, 1.05)
    assert found["estimate"] == pytest.approx(8.0 - 0.05 * noise.mean())
    assert found["standard_error"] == pytest.approx(0.05 * noise.std(ddof=1) / 8.0)
    assert found["at_end"], "the rival's best step is the first"


@pytest.mark.parametrize(("arms", "size", "left"), [(ARMS, 4, 0.0), (LEARNED_ARMS, 8, 0.25)])
def test_nothing_is_left_of_the_mean_update_of_a_broken_arm_or_a_quarter(arms, size, left):
    """By all groups of rewards that are right with probability 0.3: the mean of A (Z - 0.3)."""
    means = []
    for arm in ("broken", "TIC"):
        total = 0.0
        for group in product([0.0, 1.0], repeat=size):
            z, advantages = np.array([group]), np.empty((1, size))
            arms[arm].advantage.function(Batch(z, z, z, z, z[:, 0], z[:, 0], z[:, 0], np.empty(0)), advantages)
            total += np.prod(np.where(z == 1.0, 0.3, 0.7)) * (advantages * (z - 0.3)).mean()
        means.append(total)
    whole = (1.0 - 1.0 / size) * 0.3 * 0.7
    assert means == pytest.approx([left * whole, whole], rel=1e-12, abs=1e-15)


RUNS = 1 << 14


@pytest.fixture(scope="module")
def problem():
    return random_problem(np.random.default_rng(2), 2, 2, None, n_prompts=3, dimension=4)


def test_a_rollouts_sums_have_their_expectations(problem):
    """By prompt and response ``E[sum] = B G f p z (1 - V)``, with -(1 - z) V for wrong ones, at |z| < 4.9; no sign is other."""
    reached = np.exp(problem.policy.paths.along(problem.at(problem.theta).token_log_probabilities))
    many = np.broadcast_to(reached, (1, RUNS, *reached.shape))
    right, wrong = passes.rollout_of(problem, many, 4, np.random.default_rng(0))
    success = problem.bandit.mean_reward
    value = (reached * success).sum(axis=1, keepdims=True)
    share = 4 * GROUP_SIZE * problem.bandit.prompt_weights[:, None] * reached
    for sums, mean in ((right, share * success * (1.0 - value)), (wrong, -share * (1.0 - success) * value)):
        errors = (sums - mean).reshape(RUNS, -1)
        assert np.abs(errors.mean(axis=0) / errors.std(axis=0) * np.sqrt(RUNS)).max() < 4.9
    assert ((right >= 0.0) & (wrong <= 0.0)).all()


@pytest.mark.parametrize("estimator", [CLIP, NONE], ids=["clip", "none"])
def test_sampled_updates_have_the_exact_mean_as_theirs(problem, estimator):
    """The same sums, with what is expected of them in their place."""
    rng = np.random.default_rng(1)
    old = problem.theta + rng.normal(size=(3, 4))
    pairs = Pairs(problem, old + 0.4 * rng.normal(size=(3, 4)), old)
    success, weights = problem.bandit.mean_reward, problem.bandit.prompt_weights[:, None]
    value = (pairs.reached * success).sum(axis=-1, keepdims=True)
    sums = weights * pairs.reached * success * (1.0 - value), -weights * pairs.reached * (1.0 - success) * value
    np.testing.assert_allclose(pairs.updates(estimator, *sums), pairs.mean_updates(pairs.gains(estimator)), atol=1e-14)


@pytest.mark.parametrize("minibatches", [4, 16])
def test_one_pass_is_what_the_simulator_does(minibatches, monkeypatch):
    """The mean objective at the end, at |z| < 4.9; without ratio it is tens of standard errors away."""
    monkeypatch.setattr(passes, "ROLLOUTS", 6)
    problem = random_problem(np.random.default_rng(2), 2, 3, None, n_prompts=3, dimension=4)
    settings, step = {"passes": 1, "minibatches": minibatches}, 0.5
    mine = {
        name: success_of(settings, estimator, problem, np.array([step]), 2048, np.random.SeedSequence(3))[0]
        for name, estimator in (("clip", CLIP), ("none", NONE))
    }
    sizes = {"batch_size": 16, "group_size": GROUP_SIZE, "steps": 6 * minibatches, "inner_steps": minibatches}
    where = (problem, problem.theta, CLIP, gt.Constant(step))
    runs = gt.simulate_training(*where, **sizes, replications=8192, rng=4, optimiser=gt.Adam(), workers=1).objectives[:, -1]
    error = {name: np.hypot(sample.std() / np.sqrt(2048), runs.std() / np.sqrt(8192)) for name, sample in mine.items()}
    z = {name: (sample.mean() - runs.mean()) / error[name] for name, sample in mine.items()}
    assert abs(z["clip"]) < 4.9
    assert abs(z["none"]) > 10.0


def test_at_the_clips_step_the_arm_without_ratio_takes_the_step_that_is_best_for_the_clip():
    """The clip is best at the second step. There the other arm has half of what it has at the third."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(3, 16))
    clip = np.array([0.2, 0.8, 0.5])[:, None] + noise
    none = np.array([0.1, 0.4, 0.8])[:, None] + noise
    own, (at_clips, facts) = passes.ahead({"clip": clip, "none": none}, [1.0, 2.0, 4.0]).values()
    assert at_clips.estimate == pytest.approx(0.4, abs=1e-12)
    assert facts["step, clip's"] == 2.0
    assert own[0].estimate == pytest.approx(0.0, abs=0.01)
    assert own[1]["step, own"] == 4.0
