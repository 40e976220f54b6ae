"""The twin of a log: its laws are the sampled policy's, its unseen answers have the law's chance, bad logs are refused."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

import grpo_theory as gt
from grpo_theory.plan import fit_beta_rates, half_twins

COUNTS = np.array([[1, 2, 5], [4, 3, 1], [2, 2, 4]])
"""How often each of three responses to each of three prompts was sampled, of eight."""
REWARDS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
FEATURES = np.random.default_rng(5).normal(size=(3, 3, 4))


def sampled_problem():
    """A linear policy whose probabilities are the shares of `COUNTS`."""
    features = np.concatenate([FEATURES, np.log(COUNTS / 8.0)[..., None] / 1e7], axis=-1)
    return gt.Problem(gt.Bandit(REWARDS), gt.LinearSoftmax(features), theta=np.append(np.zeros(4), 1e7))


def log_of(counts=COUNTS, rewards=REWARDS, prompts=(0, 1, 2)):
    """The log in which each response came exactly as often as the policy says."""
    problem = sampled_problem()
    scores = problem.policy.scores(problem.theta)[..., :4]
    rows = [(m, k) for m in prompts for k in range(3) for _ in range(counts[m][k])]
    m, k = np.array(rows).T
    return gt.RaggedRollouts(m, rewards[m, k], scores[m, k])


@pytest.mark.parametrize("estimator", ["rloo", "grpo", "reinforce"])
def test_laws_of_the_twin_are_those_of_the_policy_that_was_sampled(estimator):
    problem, twin = sampled_problem(), gt.twin(log_of())
    for group_size in (2, 5):
        sizes = {"batch_size": 3, "group_size": group_size}
        own, exact = (gt.gradient_mse(one, one.theta, estimator, **sizes) for one in (twin, problem))
        assert own == pytest.approx(exact, rel=1e-11)
    optimum = gt.group_size_law(problem, problem.theta).optimum
    assert gt.group_size_law(twin, twin.theta).optimum == pytest.approx(optimum, rel=1e-10)
    # A linear policy is an exponential family: success is the same after any change of the parameters.
    there, here, step = problem.theta.copy(), twin.theta.copy(), np.random.default_rng(6).normal(size=4)
    for size in (0.0, 1.0):
        there[:4] += size * step
        here[:4] += size * step
        np.testing.assert_allclose(gt.moments(twin, here).value, gt.moments(problem, there).value, rtol=1e-12)
    first, second = half_twins(log_of(2 * COUNTS))
    whole = gt.twin(log_of(2 * COUNTS))
    assert first.policy.dimension == second.policy.dimension == whole.policy.dimension
    values = [gt.moments(one, one.theta).value for one in (first, second, whole)]
    np.testing.assert_allclose((values[0] + values[1]) / 2.0, values[2], rtol=1e-12)


def test_prompts_of_different_sizes_keep_their_own_laws_and_the_anchor_does_not_learn():
    fewer = COUNTS.copy()
    fewer[1] = [1, 1, 1]
    twin = gt.twin(log_of(fewer))
    for place in range(3):
        alone = gt.twin(log_of(fewer, prompts=(place,)))
        expected = gt.gradient_mse(alone, alone.theta, "rloo", batch_size=1, group_size=4)
        own = gt.gradient_mse(twin.at_prompt(place), twin.theta, "rloo", batch_size=1, group_size=4)
        assert own == pytest.approx(expected, rel=1e-10)
    sizes = {"batch_size": 3, "group_size": 4, "steps": 200, "replications": 8}
    runs = gt.simulate_training(twin, twin.theta, "rloo", gt.Constant(1.0), **sizes, rng=3)
    assert runs.objectives.mean() > 0.9
    np.testing.assert_allclose(runs.theta[:, -1], twin.theta[-1], rtol=1e-9)
    several = gt.twin(gt.RaggedRollouts([0, 0, 0, 1, 1], [0, 1, 2, 0, 0], np.eye(5)))  # of three rewards: nothing is unseen
    assert several.policy.dimension == 6
    np.testing.assert_allclose(gt.moments(several, several.theta).value, [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("seen", [0.0, 1.0])
def test_an_unseen_reward_has_the_chance_that_the_law_leaves(seen):
    rewards = REWARDS.copy()
    rewards[1] = seen
    log = log_of(rewards=rewards)
    law, twin = fit_beta_rates(log.counts), gt.twin(log)
    after = beta(law.a + 8 * seen, law.b + 8 * (1.0 - seen))
    expected = quad(lambda p: p * after.pdf(p), 0.0, 1.0, epsabs=1e-12, limit=500)[0]
    value = gt.moments(twin, twin.theta).value
    assert value[1] == pytest.approx(expected, rel=1e-5)
    # Prompts with both rewards stay as they were sampled.
    assert value[0] == pytest.approx(1 / 8, rel=1e-12)


def test_an_unseen_answer_is_as_far_from_the_seen_as_others_are_and_in_a_direction_of_its_own():
    rewards = REWARDS.copy()
    rewards[1] = 0.0
    twin = gt.twin(log_of(rewards=rewards))
    features, p = twin.policy.logit_map.features, twin.policy.probabilities(twin.theta)
    new = (twin.bandit.mean_reward[1] == 1.0) & (p[1] > 0.0)
    unseen = features[1, new][0, :-1]
    seen = p[1, ~new] @ features[1, ~new][:, :-1] / p[1, ~new].sum()
    contrasts = []
    for m in (0, 2):
        right = REWARDS[m] == 1.0
        others = COUNTS[m, ~right] @ FEATURES[m, ~right] / COUNTS[m, ~right].sum()
        squares = ((FEATURES[m, right] - others) ** 2).sum(axis=1)
        contrasts.append(COUNTS[m, right] @ squares / COUNTS[m, right].sum())
    assert ((unseen - seen) ** 2).sum() == pytest.approx(np.mean(contrasts), rel=1e-10)
    np.testing.assert_allclose(unseen[:4], seen[:4], atol=1e-12)
    assert np.count_nonzero(unseen[4:]) == 1
    assert not features[[0, 2]][..., 5].any()


def test_logs_of_which_there_is_no_twin(check_refused):
    """Coordinates of their own make the features of 12,000 prompts 2.3 GB."""
    scores = np.random.default_rng(1).normal(size=(24_000, 4))
    many = gt.RaggedRollouts(np.repeat(np.arange(12_000), 2), np.tile([0.0, 1.0], 12_000), scores)
    bare, alike = gt.RaggedRollouts([0, 0, 1, 1], [0, 1, 0, 1]), gt.RaggedRollouts([0, 0, 1, 1], [0, 0, 1, 1], np.eye(4))
    check_refused((lambda: gt.twin({"rewards": [0, 1]}), "gt.read_rollouts"), error=TypeError)
    check_refused(
        (lambda: gt.twin(bare), "sketch of each response for a twin.*gt.sketch to make"),
        (lambda: gt.twin(alike), "prompt whose responses differ in their reward"),
        (lambda: half_twins(gt.RaggedRollouts([0, 0, 0], [0, 1, 0], np.eye(3))), "at least 4 responses per prompt"),
        (lambda: gt.twin(many), r"twin of 12,000 prompts.*2\.3 GB.*at most 11,17\d of these prompts, or of fewer resp"),
    )
