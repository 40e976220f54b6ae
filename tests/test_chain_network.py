"""Chains whose features are learned: derivatives, laws, Hessians, simulation and training, and the linear chain beside them."""

import numpy as np
import pytest
from networks import ACTIVATIONS, derivatives_of, differences, logits_of

import grpo_theory as gt
from grpo_theory.estimation.parts import AGGREGATIONS, CLIPS, RATIOS
from grpo_theory.exact import gradient
from grpo_theory.simulate import chains as walks
from grpo_theory.simulate.streams import as_seed_sequence

CLOSE = {"rtol": 1e-12, "atol": 1e-13}
TRANSITIONS = np.array([[1, 2, 3], [2, 0, 0], [3, 3, 1], [0, 1, 2]])
SIZES = {"batch_size": 3, "group_size": 4}


def learned(activation="tanh", horizon=5):
    """A chain of four states with an end token, two prompts and three reward values.

    A network reads an embedding of each state, and knows three tokens.
    """
    rng, embeddings = np.random.default_rng([3, 1]), np.random.default_rng(3).normal(size=(4, 2))
    network = gt.TwoLayerSoftmax(embeddings, 4, 3, activation, 0.7)
    chain = gt.TokenChain(TRANSITIONS, horizon, end_token=1, starts=[0, 2], network=network)
    rewards = gt.StateRewards.from_law([0.0, 1.0, 2.5], rng.dirichlet(np.ones(3), 4), [0.3, 0.7])
    return gt.Problem(rewards, chain, theta=rng.normal(size=chain.dimension))


def by_hand(problem):
    """Return the derivatives of the logits of all states and tokens at theta, shape (D, d), by steps along the imaginary axis."""
    return derivatives_of(problem.policy.logit_map.network, problem.theta).reshape(problem.policy.n_logits, -1)


def log_linear(problem):
    """Return the chain with the derivatives of another's logits as features, and its logits as one more, which has theta 1."""
    chain, theta = problem.policy, problem.theta
    network = chain.logit_map.network
    own = logits_of(network, theta).reshape(-1, 1)
    features = np.concatenate([by_hand(problem), own], axis=1).reshape(*chain.transitions.shape, -1)
    twin = gt.TokenChain(chain.transitions, chain.horizon, chain.end_token, features, chain.starts)
    return gt.Problem(problem.bandit, twin, theta=np.eye(twin.dimension)[-1])


KINDS = pytest.mark.parametrize("activation", ACTIVATIONS)


@KINDS
def test_logits_are_those_of_the_network_in_each_state(activation):
    problem = learned(activation)
    chain, theta = problem.policy, problem.theta
    logits = logits_of(chain.logit_map.network, theta)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(chain.token_log_probabilities(theta)), chances, **CLOSE)
    np.testing.assert_allclose(problem.at(theta).tangent.features, by_hand(problem), **CLOSE)
    np.testing.assert_allclose(chain.jacobian(theta), np.stack([by_hand(problem)] * 2), **CLOSE)
    several = np.stack([theta, -theta])
    np.testing.assert_allclose(chain.logits(several)[1, 0], logits_of(chain.logit_map.network, -theta).ravel(), **CLOSE)
    assert not chain.is_linear


@pytest.mark.parametrize(("estimator", "off_policy"), [("grpo", False), ("trl_grpo_loss", True)])
def test_laws_are_those_of_the_listed_responses(estimator, off_policy):
    problem = learned()
    behaviour = problem.theta + 0.2 * np.sin(np.arange(problem.theta.size)) if off_policy else None
    laws = [gt.gradient_law(one, problem.theta, estimator, **SIZES, behaviour=behaviour) for one in (problem, problem.listed())]
    np.testing.assert_allclose(laws[0].mean, laws[1].mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(laws[0].covariance(), laws[1].covariance(), rtol=1e-11, atol=1e-14)
    assert laws[0].mse == pytest.approx(laws[1].mse, rel=1e-12)
    assert laws[0].efficiency == pytest.approx(laws[1].efficiency, rel=1e-12)


@KINDS
def test_gradient_and_hessian_are_derivatives_of_the_objective(activation):
    problem = learned(activation, horizon=4)
    slope = differences(lambda theta: gt.objective(problem, theta), problem.theta)
    np.testing.assert_allclose(gradient(problem, problem.theta), slope, rtol=1e-6, atol=1e-9)
    bent = differences(lambda theta: gradient(problem, theta), problem.theta)
    found = gt.hessian(problem, problem.theta)
    np.testing.assert_allclose(found, bent, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(gt.hessian(problem.listed(), problem.theta), found, rtol=1e-10, atol=1e-12)
    frozen = gt.hessian(twin := log_linear(problem), twin.theta)[:-1, :-1]
    assert np.abs(found - frozen).max() > 1e-3, "features that stay would have another Hessian"


def drawn_at(problem, theta, seed, run, first, n_groups, group_size):
    """Return the responses that a run draws at a parameter: edges, lengths and rewards, one row a group."""
    found = walks.make_walks(n_groups, group_size, problem.policy.horizon)
    chances = walks.chances_of(problem.at(theta))
    walks.draw_walks(as_seed_sequence(seed).generate_state(3, np.uint64), run, first, n_groups * group_size, chances, found)
    rewards = found.rewards.reshape(n_groups, group_size)
    return found.edges.reshape(n_groups, group_size, -1), found.lengths.reshape(n_groups, group_size), rewards


def tables_at(problem, theta):
    """Return the probabilities of tokens, shape (D,), and their scores, shape (D, d), with derivatives by imaginary steps."""
    network, shape = problem.policy.logit_map.network, problem.policy.transitions.shape
    logits = logits_of(network, theta)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    phi = derivatives_of(network, theta)
    return p.ravel(), (phi - (p[:, :, None] * phi).sum(axis=1, keepdims=True)).reshape(shape[0] * shape[1], -1)


def transcription(problem, step, steps, inner_steps, clipped, optimiser, seed, run):
    """Return where a run of leave-one-out means ends, with or without clipped token ratios: token by token, in plain Python."""
    (n_groups, group_size), theta = SIZES.values(), np.array(problem.theta)
    first_moment = second_moment = 0.0
    for update in range(steps):
        rollout, part = divmod(update, inner_steps)
        if part == 0:
            sampled, _ = tables_at(problem, theta)
            edges, lengths, rewards = drawn_at(problem, theta, seed, run, rollout * n_groups * group_size, n_groups, group_size)
            advantages = (rewards - rewards.mean(axis=1, keepdims=True)) * group_size / (group_size - 1)
        now, scores = tables_at(problem, theta)
        own, total = n_groups // inner_steps, np.zeros(theta.size)
        for b in range(part * own, (part + 1) * own):
            for i in range(group_size):
                for edge in edges[b, i, : lengths[b, i]]:
                    ratio = now[edge] / sampled[edge] if clipped else 1.0
                    dropped = clipped and (ratio > 1.2 if advantages[b, i] > 0.0 else ratio < 0.8)
                    total += 0.0 if dropped else ratio * advantages[b, i] * scores[edge] / group_size
        mean = total / own
        if optimiser is None:
            theta = theta + step * mean
        else:
            (a, b), n = optimiser.betas, update + 1
            first_moment, second_moment = a * first_moment + (1.0 - a) * mean, b * second_moment + (1.0 - b) * mean**2
            theta = theta + step * (first_moment / (1.0 - a**n)) / (np.sqrt(second_moment / (1.0 - b**n)) + optimiser.eps)
    return theta


@pytest.mark.parametrize(
    ("activation", "inner_steps", "clipped", "optimiser"),
    [("tanh", 1, False, None), ("relu", 3, True, None), ("identity", 3, True, gt.Adam((0.5, 0.9), 1e-3))],
)
def test_runs_are_those_of_the_algorithm(activation, inner_steps, clipped, optimiser):
    problem, step = learned(activation, horizon=4), 0.3 if optimiser is None else 0.1
    loss = gt.Estimator("loss", gt.estimators()["rloo"].advantage, RATIOS["token"], CLIPS["by sign"], AGGREGATIONS["sum"])
    options = {"steps": 6, "replications": 2, "rng": 4, "inner_steps": inner_steps, "optimiser": optimiser or gt.SGD()}
    found = gt.simulate_training(problem, problem.theta, loss if clipped else "rloo", gt.Constant(step), **SIZES, **options)
    for run in range(2):
        expected = transcription(problem, step, 6, inner_steps, clipped, optimiser, 4, run)
        np.testing.assert_allclose(found.theta[run], expected, atol=1e-10)
        assert found.objectives[run, -1] == pytest.approx(gt.objective(problem, expected), abs=1e-10)
    assert np.linalg.norm(found.theta[0] - found.theta[1]) > 1e-3
