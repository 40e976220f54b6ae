"""GRPO as a process reward model (arXiv 2509.21154): tokens that responses of a group share have the mean of their rewards.

In the controls responses are together before their token is drawn, or a step counts once and not once a response.
"""

import itertools

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import over
from simulations.sequence.parts import of_length
from simulations.statements import stated

TREES = {"two tokens, ragged": (2, 4, 0), "three tokens, ragged": (3, 3, 0), "three tokens, even": (3, 3, None)}
TREES["two tokens of two"] = (2, 2, None)
"""Trees by vocabulary, horizon and end token."""


def problem_of(tree, rng):
    """Return a problem on a tree with a logit for each token, with rewards that do not matter, and its tokens' scores."""
    policy = gt.TokenTree(1, *TREES[tree])
    problem = gt.Problem(gt.Bandit(rng.random((1, policy.n_responses))), policy, theta=rng.normal(size=policy.dimension))
    q = problem.at().token_probabilities

    def update(edges, weights):
        # A token's score is its own logit less the probabilities of all tokens at its prefix; padded tokens have the edge -1.
        present = edges >= 0
        collected = np.bincount(edges[present], weights=weights[present], minlength=q.size)
        return policy.paths.centre(collected[None].astype(float), q)[0]

    return problem, update


def shared(edges, before=False):
    """Return which responses j share the t-th token of i and all before it, shape (G, T, G) for i, t and j."""
    same = np.logical_and.accumulate(edges[:, None] == edges[None], axis=2).transpose(0, 2, 1)
    return np.concatenate([np.ones_like(same[:, :1]), same[:, :-1]], axis=1) if before else same


@check(
    stated("process-rewards/theorem 1"),
    cases=over(tree=TREES, draw=range(3)),
    broken={"before": True},
    setting="{tree}, draw {draw}",
)
def losses(tree, rng, before=False):
    """The gradients of both losses on policy, for 20 groups of eight responses and any rewards."""
    (problem, update), sides = problem_of(tree, rng), []
    for _ in range(20):
        edges = problem.policy.paths.edges[rng.integers(problem.bandit.n_responses, size=8)]
        rewards = rng.normal(size=8)
        sets = shared(edges, before)
        both = np.broadcast_to(rewards[:, None], edges.shape), (sets @ rewards) / sets.sum(axis=2)
        sides.append([update(edges, (one - rewards.mean()) / rewards.std()) / (edges >= 0).sum() for one in both])
    return tuple(np.swapaxes(sides, 0, 1))


@check(
    stated("process-rewards/by frequency"),
    cases=over(draw=range(3)),
    broken={"power": 2},
    sound={"power": 0},
    setting="two tokens of two, draw {draw}",
)
def by_frequency(rng, power=1):
    """The directions of the gradient and of the mean update over all groups of three, each token over those that share it."""
    problem, update = problem_of("two tokens of two", rng)
    p, success = problem.at().probabilities[0], problem.bandit.probabilities[0, :, 1]
    mean = np.zeros(problem.theta.size)
    for group in map(list, itertools.product(range(p.size), repeat=3)):
        edges, values = problem.policy.paths.edges[group], success[group]
        mean += p[group].prod() * update(edges, (values - values.mean())[:, None] / shared(edges).sum(axis=2) ** power)
    return of_length(1.0, mean), of_length(1.0, gt.exact.gradient(problem))
