"""Success amplification (arXiv 2503.06639): the success rates of iterated GRPO, with the exact best policy after each step.

In the broken cases nothing divides, the penalty has the wrong sign, or the recursion's slope has.
"""

import numpy as np
from scipy.special import expit, logit

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import DIVIDED, over
from simulations.sequence.parts import composed
from simulations.statements import stated

EPSILON = 1e-4
RIGHT = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
CASES = over(draw=range(3), beta=(2.0, 5.0))


def after(p, p_ref, beta, divided=True, epsilon=EPSILON):
    """Return h(p), the success rate of the best policy after one with the rate p."""
    return expit(logit(p_ref) + 1.0 / (beta * (np.sqrt(p * (1.0 - p) + epsilon) if divided else 1.0)))


@check(
    *stated("amplification/policy", "amplification/recursion"),
    cases=CASES,
    broken={"divided": False},
    setting="draw {draw}, beta {beta}",
)
def steps(beta, rng, divided=True):
    """Three steps: the maximiser of the old policy's advantages less the penalty, and its success rate."""
    reference = rng.dirichlet(np.ones(5))
    p = p_ref = float(reference @ RIGHT)
    found = []
    for _ in range(3):
        advantages = np.array([-p, 1.0 - p]) / np.sqrt(p * (1.0 - p) + EPSILON)
        bandit = gt.Bandit.from_law(advantages, np.stack([1.0 - RIGHT, RIGHT], axis=-1)[None])
        problem = gt.Problem(bandit, gt.TabularSoftmax(1, 5), kl=gt.KL(beta, [reference]), theta=np.log(reference))
        best = problem.at(gt.find_optimum(problem, problem.theta)).probabilities[0]
        told = reference * np.exp((advantages if divided else np.array([-p, 1.0 - p]))[RIGHT.astype(int)] / beta)
        found.append((best, told / told.sum(), float(best @ RIGHT), after(p, p_ref, beta, divided)))
        p = found[-1][2]
    policies, told, rates, expected = (np.array(side) for side in zip(*found, strict=True))
    return {"amplification/policy": (policies, told), "amplification/recursion": (rates, expected)}


def resting(p_ref, beta, advantage=DIVIDED):
    """Return where the mean update with the exact gradient of the penalty rests, from the reference, and its success rate."""
    problem = gt.Problem(
        gt.Bandit([[0.0, 1.0]]), gt.TabularSoftmax(1, 2), kl=gt.KL(beta, [[1.0 - p_ref, p_ref]]), theta=[0.0, logit(p_ref)]
    )
    found = gt.fixed_point(problem, problem.theta, composed(advantage, "none", kl="k2 in loss"))
    return found, float(problem.at(found.theta).reward_law[0, 1])


@check(
    *stated("amplification/above", "amplification/mean only", "amplification/rests", "amplification/small steps"),
    cases=[{"p_ref": p_ref, "beta": beta} for p_ref, beta in ((0.3, 5.0), (0.05, 2.0), (0.05, 5.0), (1e-4, 12.0))],
    broken={"wrong": True},
)
def rest(p_ref, beta, wrong=False):
    """Groups without end: where the mean is 0, and its slope there."""
    found, p = resting(p_ref, beta)
    slope = (2.0 * p - 1.0) / (2.0 * beta * np.sqrt(p * (1.0 - p)))
    told = 2.0 * beta * p * (1.0 - p) * ((abs(slope) if wrong else slope) - 1.0)
    return {
        "amplification/above": (p_ref, after(p, p_ref, -beta) if wrong else p, {"slope of h": slope}),
        "amplification/mean only": (resting(p_ref, beta, DIVIDED if wrong else "rloo")[1], expit(logit(p_ref) + 1.0 / beta)),
        "amplification/rests": (p, after(p, p_ref, beta, divided=not wrong, epsilon=0.0)),
        "amplification/small steps": (found.eigenvalues.real.min(), told),
    }


@check(
    stated("amplification/converges"),
    cases=[{"p_ref": p_ref, "beta": beta} for p_ref, beta in ((0.3, 2.0), (0.05, 5.0), (1e-4, 12.0))],
    broken={"count": 2},
    sound={"p_ref": 0.2, "beta": 5.0},
)
def converges(p_ref, beta, count=2_000):
    """The rates after so many steps from the reference, and after one more."""
    p = p_ref
    for _ in range(count):
        p = after(p, p_ref, beta)
    return p, after(p, p_ref, beta)


@check(stated("amplification/mirror"), cases=CASES, broken={"divided": False}, setting="draw {draw}, beta {beta}")
def mirror(beta, rng, divided=True):
    """A natural step of a table is the best policy near the old one."""
    problem = gt.Problem(gt.Bandit([RIGHT]), gt.TabularSoftmax(1, 5), theta=rng.normal(size=5) - 2.0 * RIGHT)

    def advantage(values, law):
        p = law[..., 1:]
        return (values - p) / np.sqrt(p * (1.0 - p) + EPSILON)

    path = gt.mean_path(problem, problem.theta, advantage, gt.Constant(1.0 / beta), steps=4, move=gt.exact.natural_step(problem))
    p = path.objectives
    deviations = np.sqrt(p[:-1] * (1.0 - p[:-1]) + EPSILON) if divided else 1.0
    return np.diff(logit(p)), np.broadcast_to(1.0 / (beta * deviations), 4)
