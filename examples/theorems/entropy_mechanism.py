"""The entropy mechanism (arXiv 2505.22617): a policy-gradient step changes the entropy by -eta Cov(log pi, pi A), to first order.

What is left over falls as eta squared. In the broken cases each gradient has the other's covariance,
or the covariance the other sign.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope

NEAR = gt.Margin(0.05, "a remainder of the next order has slope 2, of the same order slope 1; a twentieth tells them apart")
PLAIN, NATURAL, PRINTED, CORRECTED = (
    gt.Statement(f"entropy/{name}", f"arXiv 2505.22617, {number}", text, "rate", margin=NEAR, whose=whose)
    for name, number, text, whose in (
        ("theorem 1", "Theorem 1", "H(pi_{k+1}) - H(pi_k) + eta Cov(log pi, pi A) falls as eta squared in one state", "paper"),
        ("theorem 2", "Theorem 2", "with the natural gradient H(pi_{k+1}) - H(pi_k) + eta Cov(log pi, A) does", "paper"),
        ("theorem 1 on a tree", "Theorem 1, state by state", "and so does it in the second state of a response", "paper"),
        (
            "theorem 1 on a tree, corrected",
            "Theorem 1",
            "it does there with the share of visits before the covariance",
            "correction",
        ),
    )
)
STEPS = np.array([1e-2, 3e-3, 1e-3, 3e-4])
DRAWS = [{"draw": number} for number in range(3)]


def order(state, theta, direction, weighted):
    """Return the order in eta of the entropy's change at state(theta), less what is predicted, -eta Cov(log pi, weighted)."""
    p = state(theta)
    moved = np.array([state(theta + step * direction) for step in STEPS])
    changes = (p * np.log(p)).sum() - (moved * np.log(moved)).sum(axis=1)
    covariance = p @ (np.log(p) * weighted) - (p @ np.log(p)) * (p @ weighted)
    return log_log_slope(STEPS, np.abs(changes + STEPS * covariance))[0], 2.0


@gt.check(PLAIN, NATURAL, cases=DRAWS, broken={"exchanged": True}, setting="draw {draw}")
def one_state(rng, exchanged=False):
    """The softmax of six answers."""
    success, theta = rng.random((1, 6)), rng.normal(size=6)
    problem = gt.Problem(gt.Bandit(success), gt.TabularSoftmax(1, 6), theta=theta)
    p = problem.at(theta).probabilities[0]
    advantage = success[0] - p @ success[0]
    weighted = [p * advantage, advantage][:: -1 if exchanged else 1]
    mean = gt.gradient_mean(problem, theta, "rloo", batch_size=1, group_size=4)
    found = [
        order(lambda at: problem.at(at).probabilities[0], theta, *one) for one in zip((mean, advantage), weighted, strict=True)
    ]
    return {PLAIN.id: found[0], NATURAL.id: found[1]}


@gt.check(PRINTED, CORRECTED, cases=DRAWS, broken={"sign": -1.0}, setting="draw {draw}")
def second_state(rng, sign=1.0):
    """The state after the token 0, which is visited in a share of the responses."""
    tree = gt.TokenTree(1, vocabulary_size=3, horizon=2)
    success, theta = rng.random((1, 9)), rng.normal(size=tree.dimension)
    problem = gt.Problem(gt.Bandit(success), tree, theta=theta)
    edges = np.array([prefix == (0,) for prefix in map(tuple, gt.edge_table(tree)["prefix"])])
    after = [k for k, tokens in enumerate(tree.responses) if tokens[0] == 0]

    def state(parameters):
        exponentials = np.exp(parameters[edges] - parameters[edges].max())
        return exponentials / exponentials.sum()

    q, values = state(theta), success[0][after]
    visits, weighted = problem.at(theta).probabilities[0][after].sum(), sign * q * (values - q @ values)
    mean = gt.gradient_mean(problem, theta, "rloo", batch_size=1, group_size=4)
    return {PRINTED.id: order(state, theta, mean, weighted), CORRECTED.id: order(state, theta, mean, visits * weighted)}
