"""Success amplification (arXiv 2503.06639): iterated GRPO has p_n = h(p_{n-1}), and its fixed point is above p_ref.

In the broken cases the recursion lacks the division by the deviation, the penalty has the wrong sign, and groups are of 8.
"""

from itertools import accumulate

import numpy as np

import grpo_theory as gt

PAPER, EPSILON, RIGHT = "arXiv 2503.06639", 1e-4, np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
TEXT = "the best policy's success, given the old one's p, is 1/(1 + (1-p_ref)/p_ref exp(-1/(beta sqrt(p(1-p)+eps))))"
RECURSION = gt.Statement("amplification/recursion", f"{PAPER}, Theorem 1 and Lemma 1", TEXT, "identity")
AMPLIFIES = gt.Statement("amplification/fixed point", f"{PAPER}, Theorem 3", "its fixed point is above p_ref", "ordering")
SMALL = "there the mean update of GRPO with the penalty's exact gradient and groups of 64 is at most 5% of its advantage part"
STAYS = gt.Statement("amplification/GRPO stays", f"{PAPER}, read as a statement about training", SMALL, "upper bound")
K2 = gt.compose("grpo_k2", advantage="grpo", kl="k2 in loss")
CASES = [{"draw": draw, "beta": beta} for draw in range(4) for beta in (4.0, 8.0)]


def h(p, p_ref, beta, divided=True):
    """Return the success after the old policy's."""
    return 1.0 / (1.0 + (1.0 - p_ref) / p_ref * np.exp(-1.0 / (beta * (np.sqrt(p * (1.0 - p) + EPSILON) if divided else 1.0))))


def best(reference, p, beta):
    """Return the success of the maximiser of E[(r-p)/sqrt(p(1-p)+eps)] - beta KL(pi||reference)."""
    worth, kl = np.array([-p, 1.0 - p]) / np.sqrt(p * (1.0 - p) + EPSILON), gt.KL(beta, [reference])
    problem = gt.Problem(gt.Bandit([RIGHT]), gt.TabularSoftmax(1, 6), kl, objective=gt.Objective.mean_of(worth))
    return problem.at(gt.find_optimum(problem, np.log(reference))).reward_law[0, 1]


@gt.check(RECURSION, AMPLIFIES, STAYS, cases=CASES, broken={"wrong": True}, setting="draw {draw}, beta {beta}")
def iterated(beta, rng, wrong=False):
    """Three steps as the recursion has them; the fixed point of groups without end, which is h's, and the mean update there."""
    reference = rng.dirichlet(np.ones(6))
    success = list(accumulate(range(3), lambda p, _: best(reference, p, beta), initial=float(reference @ RIGHT)))
    tied, free = (gt.Problem(gt.Bandit([RIGHT]), gt.TabularSoftmax(1, 6), kl) for kl in (gt.KL(beta, [reference]), None))
    theta, sizes = gt.fixed_point(tied, np.log(reference), K2).theta, {"batch_size": 1, "group_size": 8 if wrong else 64}
    whole, part = (np.linalg.norm(gt.gradient_mean(*one, **sizes)) for one in ((tied, theta, K2), (free, theta, "grpo")))
    return {
        RECURSION.id: (success[1:], h(np.array(success[:-1]), success[0], beta, divided=not wrong)),
        AMPLIFIES.id: (success[0], tied.at(theta).reward_law[0, 1] if not wrong else h(success[0], success[0], -beta)),
        STAYS.id: (whole, 0.05 * part),
    }
