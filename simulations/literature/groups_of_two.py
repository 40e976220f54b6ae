"""2-GRPO (arXiv 2510.00977): groups of two as contrasts, exact.

In the controls groups have two responses more, rewards have three levels, or the pair's coefficient is GRPO's, 1.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import BINARY, GRADED, POLICIES, expected_update, over, world
from simulations.sequence.parts import of_length
from simulations.statements import stated

DRAWS = over(policy=POLICIES, draw=range(2))


def mean(problem, group_size):
    """Return the direction of GRPO's mean update."""
    return of_length(1.0, expected_update(problem, "grpo", group_size))


@check(*stated("2-grpo/unbiased", "2-grpo/groups of three"), cases=DRAWS, broken={"more": 2}, setting="{policy}, draw {draw}")
def unbiased(policy, rng, more=0):
    """The direction of the mean update, and of the gradient, with rewards of 0 and 1."""
    problem = world(policy, rng, prompts=3)
    gradient = of_length(1.0, gt.exact.gradient(problem))
    sizes = {"2-grpo/unbiased": 2, "2-grpo/groups of three": 3}
    return {name: (mean(problem, size + more), gradient) for name, size in sizes.items()}


@check(
    *stated("2-grpo/one objective", "2-grpo/one objective at a prompt"),
    cases=DRAWS,
    broken={"values": GRADED},
    sound={"prompts": 1},
    setting="{policy}, draw {draw}",
)
def objective(policy, rng, values=BINARY, prompts=3):
    """The direction of the mean update with groups of two and of sixteen."""
    names = {"2-grpo/one objective": prompts, "2-grpo/one objective at a prompt": 1}
    problems = ((name, world(policy, rng, values, number)) for name, number in names.items())
    return {name: (mean(problem, 2), mean(problem, 16)) for name, problem in problems}


def pair(problem):
    """Return E g+, E g-, both variances and the covariance of the scores of a right and a wrong response to one drawn prompt."""
    shares, success = problem.at().probabilities, problem.bandit.probabilities[..., 1]
    scores, prompts = problem.policy.scores(problem.theta), problem.bandit.prompt_weights
    means, variances, by_prompt = [], [], []
    for law in (shares * success, shares * (1.0 - success)):
        law = law / law.sum(axis=1, keepdims=True)
        by_prompt.append(np.einsum("mk,mkd->md", law, scores))
        means.append(prompts @ by_prompt[-1])
        variances.append(prompts @ (law * (scores**2).sum(axis=2)).sum(axis=1) - means[-1] @ means[-1])
    # Given the prompt both are drawn independently, so that E g+ g- is that of the prompts' means.
    return *variances, prompts @ (by_prompt[0] * by_prompt[1]).sum(axis=1) - means[0] @ means[1]


@check(stated("2-grpo/proposition 4.1"), cases=DRAWS, broken={"coefficient": 1.0}, setting="{policy}, draw {draw}")
def control_variate(policy, rng, coefficient=None):
    """The variance of g+ - c g- at the best c, and as printed."""
    right, wrong, both = pair(world(policy, rng, prompts=3))
    c = both / wrong if coefficient is None else coefficient
    return right - 2.0 * c * both + c**2 * wrong, (1.0 - both**2 / (right * wrong)) * right


@check(
    *stated("2-grpo/positive covariance", "2-grpo/coefficient 1", "2-grpo/no covariance at a prompt"),
    cases=DRAWS,
    broken={"prompts": 3},
    sound={"unlike": True},
    setting="{policy}, draw {draw}",
)
def covariance(policy, rng, prompts=1, unlike=False):
    """Random prompts; in the sound case an easy and a hard one, each with a right and a wrong response and the same features."""
    found = world(policy, rng, prompts=3)
    if unlike:
        # A second feature, too small to count in a score, makes one prompt easy and the other hard.
        features, law = [[[1.0, tilt], [0.0, 0.0]] for tilt in (0.01, -0.01)], [[[0.0, 1.0], [1.0, 0.0]]] * 2
        found = gt.Problem(gt.Bandit.from_law(BINARY, law), gt.LinearSoftmax(features), theta=np.array([0.0, 220.0]))
    right, wrong, both = pair(found)
    alone = pair(world(policy, rng, prompts=prompts))[2]
    return {
        "2-grpo/positive covariance": (0.0, both),
        "2-grpo/coefficient 1": (right - 2.0 * both + wrong, right),
        "2-grpo/no covariance at a prompt": (alone, 0.0),
    }
