"""Policies that are nearly sure of a response: against sums over all groups in decimals of 400 digits."""

from decimal import Decimal, localcontext
from functools import cache
from itertools import product

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.simulate.ascents import powers_of

DIGITS = 400
GAPS = (5.0, 36.0, 40.0, 300.0)
GROUP = 2
REWARDS = {"all differ": (0.3, 0.2, 0.6), "two are right": (0.0, 1.0, 1.0)}


def decimals(array):
    return np.vectorize(Decimal, otypes=[object])(np.asarray(array, dtype=np.float64))


def problem_of(kind, gap, rewards):
    """A problem of one prompt whose likeliest response leads by the gap."""
    logits = np.array([[0.0, 0.6 * gap, gap]])
    if kind == "chain":
        chain = gt.TokenChain([[0, 1], [1, 0]], horizon=3)
        return gt.Problem(gt.StateRewards(rewards[1:]), chain, theta=np.array([gap, 0.0, 0.0, 0.3 * gap]))
    if kind == "tabular":
        policy, theta = gt.TabularSoftmax(1, 3), logits.ravel()
    elif kind == "head":
        hidden = np.array([[1.0, 0.5]])
        policy, theta = gt.SoftmaxHead(hidden, 3), (np.linalg.pinv(hidden) @ logits).T.ravel()
    elif kind == "network":
        policy = gt.TwoLayerSoftmax(np.array([[1.0, 0.5]]), 2, 3)
        theta = np.concatenate([[1.0, -0.5, 0.3, 0.2], np.zeros(6)])
        hidden = policy.network.hidden(theta)
        theta[4:] = (np.linalg.pinv(hidden) @ logits).T.ravel()
    elif kind == "tree":
        policy = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0)
        theta = np.array([gap, 0.0, 0.0, 0.3 * gap])
    else:
        hidden = np.array([[[1.0, 0.2], [0.4, -0.7]]])
        policy = gt.TokenTree(1, vocabulary_size=2, horizon=2, end_token=0, hidden=hidden)
        theta = np.array([0.6, -0.5, -0.4, 0.2]) * gap
    return gt.Problem(gt.Bandit([rewards]), policy, theta=theta)


LISTED = ("tabular", "head", "network", "tree", "tree with states")
KINDS = (*LISTED, "chain")


class Oracle:
    """What definitions give for a problem at its parameters: logits and their derivatives are taken as they are."""

    def __init__(self, problem):
        policy, self.problem = problem.policy, problem
        self.paths, self.phi = policy.paths, decimals(policy.jacobian(problem.theta))
        exponentials = np.vectorize(Decimal.exp, otypes=[object])(decimals(policy.logits(problem.theta)))
        rows = exponentials.reshape(len(exponentials), -1, self.paths.vocabulary_size)
        self.tokens = (rows / rows.sum(axis=-1, keepdims=True)).reshape(exponentials.shape)
        self.success = decimals(problem.bandit.probabilities[..., 1])
        self.prompts = range(len(exponentials))

    def chance(self, m, k):
        return np.prod([self.tokens[m, edge] for edge in self.paths.edges[k] if edge >= 0])

    def logit_gradient(self, m, k):
        found, size = decimals(np.zeros(self.paths.n_logits)), self.paths.vocabulary_size
        for edge in self.paths.edges[k]:
            if edge >= 0:
                own = slice(edge // size * size, edge // size * size + size)
                found[own] -= self.tokens[m, own]
                found[edge] += 1
        return found

    def outcomes(self, m):
        """Each outcome's chance, reward and score."""
        for k in range(self.paths.n_responses):
            score = self.logit_gradient(m, k) @ self.phi[m]
            for reward, law in ((Decimal(0), 1 - self.success[m, k]), (Decimal(1), self.success[m, k])):
                yield self.chance(m, k) * law, reward, score

    def gradient(self):
        return sum(p * z * w for m in self.prompts for p, z, w in self.outcomes(m)) / len(self.prompts)

    def moments(self, advantages):
        """The mean of one group's estimate, and of its product with itself."""
        mean, square = 0, 0
        for m in self.prompts:
            for group in product(list(self.outcomes(m)), repeat=GROUP):
                chance, rewards = np.prod([p for p, _, _ in group]), [z for _, z, _ in group]
                estimate = sum(a * w for a, (_, _, w) in zip(advantages(rewards), group, strict=True)) / GROUP
                mean, square = mean + chance * estimate, square + chance * np.outer(estimate, estimate)
        return mean / len(self.prompts), square / len(self.prompts)

    def hessian(self):
        """Of the sum over responses of mean reward times probability."""
        total, size = 0, self.paths.vocabulary_size
        for m in self.prompts:
            for k in range(self.paths.n_responses):
                c = self.logit_gradient(m, k)
                form = np.outer(c, c)
                for edge in self.paths.edges[k]:
                    if edge >= 0:
                        own = slice(edge // size * size, edge // size * size + size)
                        p = self.tokens[m, own]
                        form[own, own] -= np.diag(p) - np.outer(p, p)
                total = total + self.success[m, k] * self.chance(m, k) * (self.phi[m].T @ form @ self.phi[m])
        slopes = np.array([sum(z * p * self.logit_gradient(m, k) for k, (p, z) in self.means(m)) for m in self.prompts])
        bend = self.problem.policy.logit_map.bend(self.problem.theta, slopes.astype(np.float64))
        return (total if bend is None else total + decimals(bend)) / len(self.prompts)

    def means(self, m):
        """Each response's number, chance and mean reward."""
        return enumerate((self.chance(m, k), self.success[m, k]) for k in range(self.paths.n_responses))

    def norms(self):
        """The squared lengths of the scores, shape (M, K)."""
        scores = [[self.logit_gradient(m, k) @ self.phi[m] for k in range(self.paths.n_responses)] for m in self.prompts]
        return (np.array(scores) ** 2).sum(axis=-1)


def leave_one_out(rewards):
    return [z - (sum(rewards) - z) / (len(rewards) - 1) for z in rewards]


def plain(rewards):
    return rewards


@cache
def expected(kind, gap, rewards):
    with localcontext() as context:
        context.prec = DIGITS
        oracle = Oracle(problem_of(kind, gap, REWARDS[rewards]).listed())
        gradient = oracle.gradient()
        found = {"gradient": gradient, "hessian": oracle.hessian(), "norms": oracle.norms()}
        for name, advantages in (("rloo", leave_one_out), ("reinforce", plain)):
            mean, square = oracle.moments(advantages)
            found[name, "mean"], found[name, "covariance"] = mean, square - np.outer(mean, mean)
            found[name, "mse"] = np.trace(square) - 2 * mean @ gradient + gradient @ gradient
            found[name, "efficiency"] = (gradient @ mean) ** 2 / (gradient @ gradient * np.trace(square))
        return {key: np.asarray(value).astype(np.float64) for key, value in found.items()}


def close(found, wanted, rtol=1e-9):
    """Entries against the largest: those that features make of them may cancel by right."""
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


CASES = [(kind, "all differ") for kind in KINDS] + [(kind, "two are right") for kind in ("tabular", "tree", "head")]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(("kind", "rewards"), CASES)
def test_moments_and_hessians_are_those_of_all_groups(kind, gap, rewards):
    problem, wanted = problem_of(kind, gap, REWARDS[rewards]), expected(kind, gap, rewards)
    sizes = {"batch_size": 1, "group_size": GROUP}
    close(gt.exact.gradient(problem, problem.theta), wanted["gradient"])
    for name in ("rloo", "reinforce"):
        law = gt.gradient_law(problem, problem.theta, name, **sizes)
        close(law.mean, wanted[name, "mean"])
        close(law.covariance(), wanted[name, "covariance"])
        close(law.mse, wanted[name, "mse"])
        if gap < 300.0:  # squares of the gradient are below 1e-300 from there on
            close(law.efficiency, wanted[name, "efficiency"])
    close(gt.hessian(problem, problem.theta), wanted["hessian"])


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("kind", [kind for kind in LISTED if kind != "network"])
def test_training_knows_score_norms(kind, gap):
    problem, wanted = problem_of(kind, gap, REWARDS["all differ"]), expected(kind, gap, "all differ")
    point, paths = problem.at(problem.theta), problem.policy.paths
    logit_gradients = paths.centre(paths.incidence, point.token_probabilities[:, None])
    norms = powers_of(logit_gradients, np.array(problem.policy.logit_map.gram()))
    for found in (norms[0], point.squared_score_norms[0]):
        np.testing.assert_allclose(found, wanted["norms"][0], rtol=1e-9)


SIZES = {"batch_size": 3, "group_size": 4}


@pytest.mark.parametrize("kind", ["tabular", "tree", "chain"])
def test_estimates_from_another_policy_have_their_exact_law(kind):
    """Every draw of an even policy says what the sure one's gradient is."""
    problem, ratio = problem_of(kind, 40.0, REWARDS["all differ"]), gt.compose("weighted", advantage="rloo", ratio="trajectory")
    even = np.zeros(problem.policy.dimension)
    gradient = gt.exact.gradient(problem, problem.theta)
    sizes = {**SIZES, "behaviour": even}
    law = gt.gradient_law(problem, problem.theta, ratio, **sizes)
    directions = np.eye(problem.policy.dimension) / abs(gradient).max()
    found = gt.simulate_gradients(problem, problem.theta, [ratio], **sizes, replications=4096, rng=5, directions=directions)
    errors = found.along_standard_error[0]
    assert (np.abs(found.along[0] - directions @ law.mean) < 4.9 * errors + 1e-30).all()
    close(law.mean, gradient)
