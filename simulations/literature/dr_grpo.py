"""Dr. GRPO (arXiv 2503.20783): what dividing by a response's length and by a group's deviation does, exactly.

In the controls factors are off by one response, all questions weigh alike, or the two aggregations are exchanged for one.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import GRADED, POLICIES, expected_update, over, world
from simulations.sequence.parts import composed
from simulations.statements import stated

SIZES = (2, 4, 8)


@check(stated("dr-grpo/leave-one-out"), cases=over(group_size=SIZES), broken={"more": 1}, setting="G = {group_size}")
def scaled(group_size, rng, more=0):
    """Advantages in 50 groups of any rewards, in both forms."""
    rewards = rng.normal(size=(50, group_size))
    factor = (group_size + more) / (group_size + more - 1.0)
    return np.multiply(factor, gt.advantages(rewards, "dr_grpo")), gt.advantages(rewards, "rloo")


@check(
    *stated("dr-grpo/unbiased", "dr-grpo/shortened"),
    cases=over(policy=POLICIES, group_size=SIZES),
    broken={"more": 1},
    sound={"whole": False},
    setting="{policy}, G = {group_size}",
)
def mean_update(policy, group_size, rng, more=0, whole=True):
    """The mean update beside the gradient; in the sound case without the own reward in the mean."""
    problem = world(policy, rng, GRADED)
    gradient, shortened = gt.exact.gradient(problem), expected_update(problem, "dr_grpo", group_size)
    return {
        "dr-grpo/unbiased": (shortened if whole else expected_update(problem, "rloo", group_size), (1.0 + more) * gradient),
        "dr-grpo/shortened": (shortened, (1.0 - 1.0 / (group_size + more)) * gradient),
    }


@check(
    *stated("dr-grpo/difficulty", "dr-grpo/difficulty from four on"),
    cases=over(group_size=(2, 3, 4, 8, 64)),
    broken={"kernel": "dr_grpo"},
    sound={"least": 4},
    setting="G = {group_size}",
)
def weights(group_size, kernel="grpo", least=2):
    """What multiplies the gradient of a question's success rate, at rates in the order of falling deviation."""
    rates = np.array([0.5, 0.6, 0.3, 0.8, 0.1, 0.95, 0.01])
    law = np.stack([1.0 - rates, rates], axis=-1)
    found = np.diff(gt.exact.mean_advantages(kernel, [0.0, 1.0], law, group_size=max(group_size, least)))[:, 0]
    sides = found[:-1], found[1:]
    return {"dr-grpo/difficulty": sides, "dr-grpo/difficulty from four on": sides if group_size >= 4 else None}


def sides_of(counted, aggregations, tree, theta, right):
    """Return how fast the mean length of right responses, if `counted`, or of wrong ones grows for each unit of success gained.

    That with both aggregations, in the order in which the paper has them.
    """
    problem = gt.Problem(gt.Bandit([right.astype(float)]), tree, theta=theta)
    of, length, gradient = (right == counted).astype(float), tree.paths.lengths, gt.exact.gradient(problem)

    def mean(point):
        return (point.probabilities * of) @ length / (point.probabilities @ of)

    def counts(point):
        # d E[of L]/E[of] = E[of (L - l) W]/E[of], l the mean length.
        return of * (length - mean(point)[:, None]) / (point.probabilities @ of)[:, None]

    slope = gt.observe(problem, theta, gt.Observable("mean length", mean, counts)).gradient
    kernels = (composed("dr_grpo", "none", aggregation=one) for one in aggregations)
    rates = [slope @ update / (gradient @ update) for update in (expected_update(problem, one, 4) for one in kernels)]
    return tuple(rates[::-1] if counted else rates)


def drawn(shape, counted, rng):
    """Draw a tree, parameters, and which responses are right: both kinds occur, and those that count have two lengths or more."""
    tree = gt.TokenTree(1, vocabulary_size=shape[0], horizon=shape[1], end_token=0)
    right = np.zeros(len(tree.responses), dtype=bool)
    while right.all() or not right.any() or len({*tree.paths.lengths[right == counted]}) < 2:
        right = rng.random(right.size) < 0.5
    return tree, rng.normal(size=tree.dimension), right


COUNTED = {"dr-grpo/longer if wrong": False, "dr-grpo/shorter if right": True}


@check(
    *stated(*COUNTED, "dr-grpo/up to two tokens"),
    cases=over(policy=("uniform", *(f"draw {number}" for number in range(12)))),
    broken={"aggregations": ("sum", "sum")},
    sound={"shape": (2, 2)},
)
def lengths(policy, rng, shape=None, aggregations=("sum", "own length")):
    """Trees of up to three of three tokens, and one where both fail; in the sound case responses have one token or two.

    There the policy is uniform over the tokens 0, which ends, and 1. Responses 0, 110 and 1111 are right and the others wrong.
    For the second statement it is the other way round.
    """
    sides = {}
    for name, counted in COUNTED.items():
        tree, theta, right = drawn(shape or (3, 3), counted, rng)
        if policy == "uniform" and shape is None:
            tree = gt.TokenTree(1, vocabulary_size=2, horizon=4, end_token=0)
            theta = np.zeros(tree.dimension)
            right = np.array([one in ((0,), (1, 1, 0), (1, 1, 1, 1)) for one in tree.responses]) != counted
        sides[name] = sides_of(counted, aggregations, tree, theta, right)
    both = [sides_of(counted, aggregations, *drawn((2, 2), counted, rng)) for counted in COUNTED.values()]
    return sides | {"dr-grpo/up to two tokens": tuple(np.transpose(both))}
