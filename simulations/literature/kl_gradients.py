"""KL as a loss (arXiv 2506.09477, arXiv 2510.01555): which gradient estimates of whole responses and of tokens have, on policy.

Gradients of divergences are taken along the imaginary axis. In the controls the slope is that of another estimate.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import KINDS, SHARED, TABLE, TREE, UNEVEN, drawn, expected_update, orders, over, score_mean
from simulations.sequence.divergences import at_held_prefixes, between, gradient
from simulations.sequence.parts import composed
from simulations.statements import stated


def tied(kind, rng):
    """Return a problem without rewards, whose penalty of strength 1 is the divergence from a random reference."""
    free = drawn(kind, rng, success=0.0)
    reference = free.at(free.theta + 0.7 * rng.normal(size=free.theta.size))
    return gt.Problem(free.bandit, free.policy, kl=gt.KL(1.0, reference.probabilities), theta=free.theta), reference


def trained(problem, term):
    """Return the mean of what a trainer's KL term adds to its estimate, as a gradient to descend, shape (d,)."""
    return -expected_update(problem, composed("reinforce", "none", kl=term), 2)


@check(
    *stated("rethinking/k2 as loss", "rethinking/k2 as loss, tokens", "pitfalls/k3 as loss"),
    cases=over(kind=KINDS),
    broken={"exchanged": True},
    sound={"kind": TABLE},
)
def losses(kind, rng, exchanged=False):
    """Of whole responses, and summed over tokens as trainers do."""
    problem, reference = tied(kind, rng)
    point, theta = problem.at(), problem.theta
    logs = np.log(point.probabilities / reference.probabilities)
    slopes = [logs, 1.0 - np.exp(-logs)]
    k2, k3 = (score_mean(problem, theta, point.probabilities * one) for one in slopes[:: -1 if exchanged else 1])
    forward = gradient(problem, lambda now: -(reference.probabilities * problem.policy.paths.along(now)).sum(), theta)
    return {
        "rethinking/k2 as loss": (k2, gradient(problem, between(problem, problem.log_reference), theta)),
        "rethinking/k2 as loss, tokens": (trained(problem, f"k{2 + exchanged} in loss"), trained(problem, "k1 in reward")),
        "pitfalls/k3 as loss": (k3, forward),
    }


@check(*stated("pitfalls/partial", "pitfalls/to go"), cases=over(kind=(TREE, UNEVEN, SHARED)), broken={"future": 0.0})
def sequences(kind, rng, future=1.0):
    """The part that tokens' divergences have, what they lack, and the weights with the divergences to come."""
    problem, _ = tied(kind, rng)
    point, paths = problem.at(), problem.policy.paths
    logs = paths.gather(point.token_log_probabilities - problem.log_reference)
    kl = gradient(problem, between(problem, problem.log_reference), problem.theta)

    def pulled(weights):
        """Return E sum_t weight_t grad log pi_t for weights of the tokens of all responses (1, K, T)."""
        edges = paths.add_up(point.probabilities[:, :, None] * weights)
        return point.tangent.adjoint(paths.centre(edges, point.token_probabilities))

    divergences = paths.by_prefix(point.token_probabilities * (point.token_log_probabilities - problem.log_reference))
    at = paths.gather(divergences)
    later = at[..., ::-1].cumsum(axis=-1)[..., ::-1] - at
    held = at_held_prefixes(problem, point, lambda now: np.exp(now) * (now - problem.log_reference))
    to_go = logs + future * (logs[..., ::-1].cumsum(axis=-1)[..., ::-1] - logs)
    return {
        "pitfalls/partial": (gradient(problem, held, problem.theta) + future * pulled(later), kl),
        "pitfalls/to go": (pulled(to_go), kl),
    }


@check(stated("rethinking/k3 as loss"), cases=over(kind=(TABLE, TREE)), broken={"factor": 1.1}, setting="{kind}")
def first_order(kind, rng, factor=1.0):
    """References that approach the policy; in the control the loss is a tenth too strong."""
    problem = drawn(kind, rng)
    p, away = problem.at().probabilities, rng.normal(size=problem.theta.size)

    def left(distance):
        logs = np.log(p / problem.at(problem.theta + distance * away).probabilities)
        return np.linalg.norm(score_mean(problem, problem.theta, p * (-factor * np.expm1(-logs) - logs)))

    return orders(left)[0], 2.0
