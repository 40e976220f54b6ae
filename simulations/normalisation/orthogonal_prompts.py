"""N4: prompts with orthogonal features do not interact, exact.

This is tested step by step, and along whole paths, on random problems. In the control the features of two prompts have a
correlation of 0.1.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.statements import stated

PROMPTS, ANSWERS, WIDTH = 4, 4, 3
"""Prompts, responses to each, and features of a response that are its prompt's own."""


def prompts_apart(rng, correlation):
    """Return random prompts with X_i = A_i Q_i', Q_i' Q_j = correlation I, so that X_i X_j' = correlation A_i A_j'."""
    turned = np.linalg.qr(rng.normal(size=((PROMPTS + 1) * WIDTH,) * 2))[0]
    blocks = turned.reshape(PROMPTS + 1, WIDTH, -1)
    axes = np.sqrt(1.0 - correlation) * blocks[:-1] + np.sqrt(correlation) * blocks[-1]
    features = rng.normal(size=(PROMPTS, ANSWERS, WIDTH)) @ axes
    return gt.Problem(gt.Bandit(np.eye(ANSWERS)[rng.integers(ANSWERS, size=PROMPTS)]), gt.LinearSoftmax(features))


@check(
    *stated("N4", "N4/paths"),
    # fifty steps a prompt, so that success rates change much
    cases=lambda quick: [
        {"rule": rule, "problems": 2 if quick else 4, "steps": 20 if quick else 200} for rule in ("undivided", "divided")
    ],
    broken={"correlation": 0.1},
    setting="{rule}",
)
def apart(rule, problems, steps, rng, correlation=0.0):
    """The largest change of success by a step at another prompt, and the largest parting from a prompt trained alone."""

    def success(theta):
        return gt.moments(problem, theta).value

    def moved(theta, prompt):
        moments = gt.moments(problem, theta)
        variance = moments.value[prompt] * (1.0 - moments.value[prompt])
        scale = np.sqrt(np.linalg.eigvalsh(problem.policy.tangent(theta).gram()).max())
        return theta + moments.prompt_gradients[prompt] / scale**2 / (np.sqrt(variance) if rule == "divided" else 1.0)

    moves, partings = [], []
    for _ in range(problems):
        problem = prompts_apart(rng, correlation)
        theta = rng.normal(size=problem.policy.dimension)
        changes = [success(moved(theta, m)) - success(theta) for m in range(PROMPTS)]
        moves.append(np.abs(changes)[~np.eye(PROMPTS, dtype=bool)])
        together, alone = theta, [theta] * PROMPTS
        for m in rng.integers(PROMPTS, size=steps):
            together, alone[m] = moved(together, m), moved(alone[m], m)
        partings.append(np.abs(success(together) - [success(one)[m] for m, one in enumerate(alone)]))
    return {"N4": (moves, 0.0), "N4/paths": (partings, 0.0)}
