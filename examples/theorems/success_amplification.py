"""Success amplification (arXiv 2503.06639): iterated GRPO has p_n = h(p_{n-1}), and its fixed point is above p_ref.

In the broken cases the recursion lacks the division by the deviation, the penalty has the wrong sign, and groups are of 8.
"""

import numpy as np

import grpo_theory as gt

PAPER = "arXiv 2503.06639"
RECURSION = gt.Statement(
    "amplification/recursion",
    f"{PAPER}, Theorem 1 and Lemma 1",
    "the best policy's success, given the old one's p, is 1/(1 + (1-p_ref)/p_ref exp(-1/(beta sqrt(p(1-p)+eps))))",
    "identity",
)
AMPLIFIES = gt.Statement(
    "amplification/fixed point", f"{PAPER}, Theorem 3", "the fixed point's success is above the reference's", "ordering"
)
STAYS = gt.Statement(
    "amplification/GRPO stays",
    f"{PAPER}, read as a statement about training",
    "there the mean update of GRPO with the penalty's exact gradient and groups of 64 is at most 5% of its advantage part",
    "upper bound",
)
EPSILON, RIGHT = 1e-4, np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
K2 = gt.compose("grpo_k2", advantage="grpo", kl="k2 in loss")
CASES = [{"draw": draw, "beta": beta} for draw in range(4) for beta in (4.0, 8.0)]


def h(p, p_ref, beta, divided=True):
    """Return the success after the old policy's."""
    deviation = np.sqrt(p * (1.0 - p) + EPSILON) if divided else 1.0
    return 1.0 / (1.0 + (1.0 - p_ref) / p_ref * np.exp(-1.0 / (beta * deviation)))


def best(reference, p, beta):
    """Return the maximiser of E[(r-p)/sqrt(p(1-p)+eps)] - beta KL(pi||reference), by Newton's method, and its success."""
    values = np.array([-p, 1.0 - p]) / np.sqrt(p * (1.0 - p) + EPSILON)
    bandit = gt.Bandit.from_law(values, np.stack([1.0 - RIGHT, RIGHT], axis=-1)[None])
    problem = gt.Problem(bandit, gt.TabularSoftmax(1, 6), kl=gt.KL(beta, [reference]), theta=np.log(reference))
    found = gt.find_optimum(problem, problem.theta)
    return found, float(problem.at(found).probabilities[0] @ RIGHT)


@gt.check(RECURSION, cases=CASES, broken={"divided": False}, setting="draw {draw}, beta {beta}")
def three_steps(beta, rng, divided=True):
    """Success after each of three steps, and as the recursion has it."""
    reference = rng.dirichlet(np.ones(6))
    p_ref = float(reference @ RIGHT)
    p, found, told = p_ref, [], []
    for _ in range(3):
        told.append(h(p, p_ref, beta, divided))
        p = best(reference, p, beta)[1]
        found.append(p)
    return found, told


@gt.check(AMPLIFIES, STAYS, cases=CASES, broken={"sign": -1.0, "group_size": 8}, setting="draw {draw}, beta {beta}")
def at_the_fixed_point(beta, rng, sign=1.0, group_size=64):
    """The fixed point beside the reference, and the mean update there."""
    reference = rng.dirichlet(np.ones(6))
    free, tied = (gt.Problem(gt.Bandit([RIGHT]), gt.TabularSoftmax(1, 6), kl=kl) for kl in (None, gt.KL(beta, [reference])))
    # Groups without end: the mean update is 0 exactly where h has its fixed point.
    theta = gt.fixed_point(tied, np.log(reference), K2).theta
    p, p_ref, sizes = tied.at(theta).reward_law[0, 1], float(reference @ RIGHT), {"batch_size": 1, "group_size": group_size}
    part = np.linalg.norm(gt.gradient_mean(free, theta, "grpo", **sizes))
    whole = np.linalg.norm(gt.gradient_mean(tied, theta, K2, **sizes))
    return {AMPLIFIES.id: (p_ref, p if sign > 0.0 else h(p, p_ref, -beta)), STAYS.id: (whole, 0.05 * part)}
