"""N5, N6, N7: sums along training paths, and which update is ahead, for orthogonal prompts, exact.

Sums of squared gradients are compared with their bounds, and mean success with division with that without. Prompts that are
orthogonal do not move each other. So a prompt's state after t updates is that after k of its own, where k is binomial (t, 1/n).
Means over paths are exact sums. In the controls a prompt stops learning once it is right half of the time, steps multiply by the
deviation, or plain steps are longer.
"""

from functools import cache

import numpy as np

from grpo_theory.harness import check
from grpo_theory.theory import divided_gain_constant, plain_gain_constant
from simulations.normalisation.ascent import SHARP_STEPS, Prompts, Step
from simulations.normalisation.prompts import MIXTURES, prompts
from simulations.statements import stated

PARTS = stated("N5", "N6", "N7")
RATES = MIXTURES | {"learnt": (0.9,)}
"""The success rates at the start of a mixture, of equally many prompts each; some have been learnt before."""
N_PROMPTS = 8
PRINTED = 16.0 / 3.0
"""2 (8/3): the constant of Theorem 3.2."""
ARMS = {
    "plain": Step(1.0, 0.0),
    "divided": Step(0.5, 0.5),
    "multiplied": Step(0.5, -0.5),
    "plain, best": Step(SHARP_STEPS[0], 0.0),
    "divided, best": Step(SHARP_STEPS[1], 0.5),
    "multiplied, best": Step(SHARP_STEPS[1], -0.5),
}
"""The printed steps (X = 1), those of the best guarantees, and the control's, multiplied by the standard deviation instead."""


def own_path(rate, step, count, stops=False):
    """Return a prompt's success, deviation, squared gradient, its root, and the square over the deviation, shape (5, count).

    They are those after 0, 1, ... steps on it; in the control it stops learning once it is right half of the time.
    """
    alone = Prompts.of(prompts(0.0, [rate]))
    theta, states, only = alone.theta[None], [], np.zeros(1, dtype=np.int64)
    for _ in range(count):
        state = alone.at(theta)
        success, deviation, square = state.success[0, 0], np.sqrt(state.variance[0, 0]), state.squares[0, 0]
        states.append((success, deviation, square, np.sqrt(square), square / deviation))
        if not (stops and success >= 0.5):
            theta = alone.step(theta, state, only, step)
    return np.array(states).T


def counts_law(horizon, n):
    """Return P(a prompt has been drawn k times in t updates), t = 0 to the horizon, k up to where 1e-16 is left."""
    from scipy.stats import binom  # slow to import, and seldom wanted

    most = int(binom.isf(1e-16, horizon, 1.0 / n)) + 1
    return binom.pmf(np.arange(most + 1), np.arange(horizon + 1)[:, None], 1.0 / n)


@cache
def walked(mixture, horizon, stops=False):
    """Return the means over paths and prompts of each arm, before each update and after the last, (5, T + 1)."""
    law = counts_law(horizon, N_PROMPTS)
    means = {arm: [own_path(rate, step, law.shape[1], stops) @ law.T for rate in RATES[mixture]] for arm, step in ARMS.items()}
    return {arm: np.mean(paths, axis=0) for arm, paths in means.items()}


def cases(mixtures, horizons, quick_horizons):
    """Return what lists a case for each mixture and horizon."""
    return lambda quick: [{"mixture": name, "horizon": T} for name in mixtures for T in (quick_horizons if quick else horizons)]


@check(
    *stated("N5/sum", "N5/minimum", "N5/sum, sharp", "N6/printed", "N6/corrected", "N6/minimum", "N6/weighted"),
    stated("N6/weighted, sharp"),
    # by then the hardest prompts have learnt, or not, if the update is broken
    cases=cases(("easy", "hard", "learnt"), (1024, 2048, 4096), (1024,)),
    broken={"stops": True},
    setting="{mixture} (T = {horizon})",
)
def sums(mixture, horizon, stops=False):
    """Left over right side of the bounds on sums over the horizon."""
    paths = {arm: path[:, :horizon] for arm, path in walked(mixture, horizon, stops).items()}
    plain, scale = paths["plain"][2], N_PROMPTS * (1.0 - RATES[mixture][0])
    _, deviation, square, norm, weighted = paths["divided"]
    right = PRINTED * scale * deviation.mean()
    quotients = {
        "N5/sum": plain.sum() / (2.0 * scale),
        "N5/sum, sharp": paths["plain, best"][2].sum() * plain_gain_constant(SHARP_STEPS[0]) / scale,
        "N6/printed": square.sum() / right,
        "N6/corrected": norm.mean() ** 2 * horizon / right,
        "N6/weighted": weighted.sum() / (PRINTED * scale),
        "N6/weighted, sharp": paths["divided, best"][4].sum() * divided_gain_constant(SHARP_STEPS[1]) / scale,
    }
    # the start's own gradient of hard prompts is as small as a minimum must be, whatever the update does
    if mixture != "hard":
        quotients["N5/minimum"] = horizon * plain.min() / (2.0 * scale)
        quotients["N6/minimum"] = norm.min() ** 2 * (1.0 / deviation).sum() / (PRINTED * scale)
    return {name: (quotient, 1.0) for name, quotient in quotients.items()}


@check(
    *stated("N7/printed", "N7/sum", "N7/converse", "N7/always", "N7/best steps"),
    cases=cases(RATES, (8, 32, 128, 256, 512, 1024, 2048, 4096), (8, 128, 1024)),
    broken={"wrong": True},
    setting="{mixture} (T = {horizon})",
)
def ahead(mixture, horizon, wrong=False):
    """Who is ahead after an update, in success and in the sum of squared gradients, on either side of the threshold."""
    mean, arm = walked(mixture, horizon), "multiplied" if wrong else "divided"
    success = {name: path[0, horizon] for name, path in mean.items()}
    threshold = 8.0 / 3.0 * mean["divided"][1, :horizon].mean()
    facts = {"average of (8/3) sqrt V": threshold, "success of plain": success["plain"]}
    sides = {
        "N7/always": (success["plain"] - success[arm], 0.0, facts),
        "N7/best steps": (success["plain, best"] - success[f"{arm}, best"], 0.0, facts),
    }
    if threshold < 1.0:
        sides["N7/printed"] = sides["N7/always"]
        sides["N7/sum"] = (walked(mixture, horizon, wrong)["divided"] - mean["plain"])[2, :horizon].sum(), 0.0, facts
    else:
        sides["N7/converse"] = success["plain, best" if wrong else "divided"] - success["plain"], 0.0, facts
    return sides
