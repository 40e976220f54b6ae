"""How strongly prompts interact at a state, the steps that the theorems allow, and what one step gains."""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from grpo_theory.evidence import Evidence
from simulations.normalisation.ascent import Prompts, Step

ROUNDING = 1e-8
"""A cosine of gradients below this counts as 0, and so does a gradient below this times X V: nearly everything has cancelled."""
FACTS = ("M", "R1", "R2")
"""What the constants of an interaction are called."""


class Interaction(NamedTuple):
    """M of Assumption 4, NaN where there is none; R1 and R2 of Assumption 5, ratios of gradients' norms and of deviations."""

    strength: float
    gradients: float
    deviations: float


def interaction(problem, state):
    """Return the least M, R1 and R2 for all prompts i and j, at all states of all runs.

    M is the least with M <grad J_i, grad J_j> >= ||X_i grad J_j||^2/||X_i||^2.
    """
    gradients, deviation = state.gradients, np.sqrt(state.variance)
    inner = np.einsum("rid,rjd->rij", gradients, gradients)
    squares = np.einsum("rii->ri", inner)
    seen = (np.einsum("ikd,rjd->rijk", problem.features, gradients) ** 2).sum(axis=-1) / problem.norms[:, None] ** 2
    interacting = seen > 1e-14 * squares[:, None, :]
    rounding = ROUNDING * np.sqrt(squares[:, :, None] * squares[:, None, :])
    lost = squares <= (ROUNDING * problem.norms * state.variance) ** 2
    if lost.any() or (inner <= rounding)[interacting].any():
        return Interaction(*3 * (float("nan"),))
    norms = np.sqrt(squares)
    return Interaction(
        float((seen[interacting] / inner[interacting]).max()),
        *(float((part.max(axis=1) / part.min(axis=1)).max()) for part in (norms, deviation)),
    )


def constants(worst):
    """Return by how much each update's theorem shortens the step and the guarantee: as printed, and with less."""
    strength, gradients, deviations = worst
    # with NaN first the greater of the two is NaN
    return {
        "plain": max(strength / 2.0, 1.0),
        "divided": max(gradients, 5.0 * strength / 8.0) * deviations,
        "divided, without R1": max(5.0 * strength / 8.0, 1.0) * deviations,
        "divided, appendix": max(gradients * deviations, strength / 2.0),
        "divided, without R2": max(gradients, 5.0 * strength / 8.0),
    }


def step_of(update, problem, constant):
    """Return the step of an update's theorem that is shortened by a constant, and the constant of its guarantee.

    Theorem 3.1 takes steps 1/X^2, Theorem 3.2 1/(2 X^2); they guarantee 1/2 and 3/16 of ||grad J_i||^2/(X^2 V_i^power).
    """
    scale = problem.norms.max() ** 2 * constant
    return (Step(1.0 / scale, 0.0), 0.5 / scale) if update == "plain" else (Step(0.5 / scale, 0.5), 3.0 / 16.0 / scale)


def gains(problem, theta, moves):
    """Return how much each move (m, d) raises each prompt's success, (m, n): from logits, so that small gains keep digits."""
    p = softmax(problem.features @ theta, axis=-1)
    growth = np.expm1(np.einsum("ikd,md->mik", problem.features, moves))
    own = (p * problem.right).sum(axis=-1)
    failure = (p * (1.0 - problem.right)).sum(axis=-1)
    pull = failure * (growth * problem.right).sum(axis=-1) - (p * (1.0 - problem.right) * growth).sum(axis=-1)
    return own * pull / (1.0 + (p * growth).sum(axis=-1))


def shortfall(problem, theta, step, constant, sign=1.0):
    """Return the greatest share by which a mean gain falls short of constant ||grad J_i||^2/(n V_i^power), at theta (d,)."""
    state = problem.at(theta[None])
    n = len(problem.right)
    moves = sign * step.size * state.gradients[0] / state.variance[0, :, None] ** step.power
    gain = gains(problem, theta, moves).mean(axis=0)
    wanted = constant * state.squares[0] / (n * state.variance[0] ** step.power)
    return float((1.0 - gain / wanted).max())


def falling_short(problem, theta, names, sign=1.0):
    """Return the shortfall of each update, and M, R1 and R2, or nothing where the assumption fails."""
    here = interaction(problem, problem.at(theta[None]))
    if np.isnan(here.strength):
        return {}
    steps = {name: step_of(name, problem, constants(here)[name]) for name in names}
    gaps = {name: shortfall(problem, theta, step, constant, sign) for name, (step, constant) in steps.items()}
    return gaps | dict(zip(FACTS, here, strict=True))


def course(problem, drawn, update, constant=1.0, stops=False):
    """Run over the draws (T, R), with a step shortened by a constant; in the control prompts stop learning at success 1/2.

    Where the runs ask for a larger constant they end.

    Returns
    -------
    sums : ndarray, shape (4, R, n)
        Of each prompt's squared gradient, its root, the deviation, and the square over the deviation.
    worst : Interaction
        What holds at the states of all runs; M is NaN where one has none.
    """
    step, _ = step_of(update, problem, constant)
    theta, worst = np.tile(problem.theta, (drawn.shape[1], 1)), Interaction(0.0, 0.0, 0.0)
    sums = np.zeros((4, drawn.shape[1], len(problem.right)))
    for now in drawn:
        state = problem.at(theta)
        squares, deviations = state.squares, np.sqrt(state.variance)
        sums += np.stack([squares, np.sqrt(squares), deviations, squares / deviations])
        learns = ~(stops & (np.take_along_axis(state.success, now[:, None], axis=1) >= 0.5))
        theta = np.where(learns, problem.step(theta, state, now, step), theta)
        if not stops:
            worst = Interaction(*np.maximum(worst, interaction(problem, state)).tolist())
            if constants(worst)[update] > constant:
                break  # whatever follows, the constant is too small
    return sums, worst


def worst_prompt(quotients, added):
    """Return the evidence that the largest of the prompts' quotients (n,) is at most 1, from what each run adds to it (R, n)."""
    i, (runs, n) = int(np.argmax(quotients)), added.shape
    if runs == 1:
        return Evidence(float(quotients[i]), 1.0)
    error = float(added[:, i].std(ddof=1) / np.sqrt(runs))
    return Evidence(float(quotients[i]), 1.0, error, replications=runs, comparisons=n)


def opposed(neighbour, lean):
    """Return two prompts of three answers that satisfy Assumption 4, and of which a step on the second lowers the first.

    The first has all answers equally likely. The second's gradient moves the wrong answers of the first apart, by equal amounts.
    It moves the first's right answer by `lean` more than their mean. So the first-order change is as small as `lean`, and the
    second-order change is not.

    Parameters
    ----------
    neighbour : float
        The success rate of the second prompt, near 0 or 1.
    lean : float
        Small and above 0.
    """
    deviations = np.sqrt(2.0 / 9.0 / (neighbour * (1.0 - neighbour)))
    away = np.array([2.0 * lean / 3.0, np.sqrt(0.5) - lean / 3.0, -np.sqrt(0.5) - lean / 3.0])
    # the cosine of the two gradients is 0.9/(2 R2): then R1 R2 is below M/2, where the appendix says that M/2 will do
    own = lean * np.array([2.0 * deviations / 0.9, 0.0, 0.0])
    pull = np.array([2.0, -1.0, -1.0]) / np.sqrt(6.0)
    logits = np.array([np.log(2.0 * neighbour / (1.0 - neighbour)), 0.0, 0.0])
    first = np.stack([np.zeros(3), away, own], axis=1)
    second = np.stack([logits / FAR, pull, np.zeros(3)], axis=1)
    return Prompts(np.stack([first, second]), np.eye(3)[[0, 0]], np.array([FAR, 0.0, 0.0]))


FAR = 50.0
"""The parameter that gives the second prompt its logits: far, so that its feature is short."""
