"""Figure 4: errors, constants and winners as the language model's head learns.

All numbers are exact, by the closed forms that `error_law` checks by enumeration. They are judged at mean successes of 0.15,
0.35, 0.6 and 0.85. An error is that of one group about its own prompt's gradient. The spread between prompts is left out: it is
the same for all estimators and would hide what tells them apart.

The hidden states stay as they are, so what is trained is the head alone: theta, 10 x 576 numbers.  In plain coordinates gradient
ascent on J stalls below 0.4, because one direction of the hidden states carries nearly all of their power.  So the step is the
exact gradient in whitened features, h -> (E h h' + RIDGE I)^(-1/2) h: in the head's own coordinates

    theta <- theta + STEP grad J (E h h' + RIDGE I)^(-1).

Nothing is drawn, and the last step to each policy is shortened so that mean success is what was asked for.

In the controls V is added instead of subtracted, or the baseline is one other reward. In that of the quality, the better policy
is seen through groups of 4 instead of 64.
"""

from functools import cache
from itertools import pairwise, product

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.harness import check
from grpo_theory.theory import break_even_group_size
from simulations.gradient.baseline_statements import FIFTH, LINE, NEAR, PAIRS, SAME, WRONG_SIGN, correlations, errors
from simulations.statements import stated

TRAINED, QUALITY = stated("U6/vanilla, trained", "U6/quality")
PROBLEMS = ("lm-zero-shot", "lm-few-shot")
QUALITIES = (0.15, 0.2, 0.25, 0.35, 0.45, 0.6, 0.7, 0.85)
JUDGED = (0.15, 0.35, 0.6, 0.85)
GROUP_SIZES = (4, 8, 16, 32, 64)
STAGES = [{"problem": name, "quality": quality} for name, quality in product(PROBLEMS, JUDGED)]
STEPS = [
    {"problem": problem, "estimator": name, "worse": worse, "better": better}
    for problem, name, (worse, better) in product(PROBLEMS, ("reinforce", "oracle", "rloo"), pairwise(JUDGED))
]
RIDGE, STEP = 0.01, 3.0
MOST_STEPS = 1000


def trained_heads(problem, qualities):
    """Return the head's theta at each of some mean successes along one path of training.

    Parameters
    ----------
    problem : Problem
        Its policy is a head, and its prompts are equally likely.
    qualities : sequence of float
        Mean successes in (0, 1), rising; where the problem's own theta has more already it is returned.

    Returns
    -------
    list of ndarray, each of shape (d,)

    Raises
    ------
    ValueError
        If a mean success is not reached in 1,000 steps.
    """
    success, hidden = problem.bandit.mean_reward, problem.policy.logit_map.hidden
    n_prompts, width = hidden.shape
    whitened = np.linalg.solve(hidden.T @ hidden / n_prompts + RIDGE * np.eye(width), hidden.T).T
    kernel = STEP * hidden @ whitened.T / n_prompts
    total, gains = np.zeros_like(success), np.zeros_like(success)
    logits = before = hidden @ problem.theta.reshape(-1, width).T
    thetas: list = []

    def reached(share, quality):
        probabilities = softmax(before + share * (logits - before), axis=1)
        return float((probabilities * success).sum(axis=1).mean()) - quality

    for _ in range(MOST_STEPS):
        probabilities = softmax(logits, axis=1)
        values = (probabilities * success).sum(axis=1, keepdims=True)
        while len(thetas) < len(qualities) and values.mean() >= qualities[len(thetas)]:
            share = 1.0 if before is logits else brentq(reached, 0.0, 1.0, args=(qualities[len(thetas)],), xtol=1e-14)
            taken = total - (1.0 - share) * gains
            thetas.append(problem.theta + (STEP / n_prompts * taken.T @ whitened).reshape(-1))
        if len(thetas) == len(qualities):
            return thetas
        gains, before = probabilities * (success - values), logits
        total, logits = total + gains, logits + kernel @ gains
    raise ValueError(f"mean success {qualities[len(thetas)]} must be reached within {MOST_STEPS} steps, got {values.mean():.3f}")


@cache
def policies(problem):
    """Return by mean success the law, the moments and the errors by estimator and group size of a head as it learns."""
    found, made = gt.gallery.problem(problem), {}
    for quality, theta in zip(QUALITIES, trained_heads(found, QUALITIES), strict=True):
        moments = gt.moments(found, theta)
        made[quality] = gt.group_size_law(found, theta), moments, {size: errors(moments, size) for size in GROUP_SIZES}
    return made


@check(TRAINED, NEAR, SAME, cases=STAGES, broken={"added": WRONG_SIGN, "other": PAIRS}, setting="{problem}, success {quality:g}")
def winners(problem, quality, added="rloo", other="rloo"):
    """Leave-one-out against no baseline and against the oracle; broken, two others in its place."""
    law, moments, by_size = policies(problem)[quality]
    measured = correlations(moments)
    facts = {name: getattr(law, name) for name in ("c1", "c2", "c3")} | {
        "G*": law.optimum,
        "mean |corr(||W||^2, Z)|": measured["correlation_mean"],
        "share of prompts where no baseline beats V": measured["vanilla_wins"],
        "leave-one-out beats no baseline above G": break_even_group_size(moments),
    }

    def excess(name, against, *sizes):
        return np.array([by_size[size][name] / by_size[size][against] - 1.0 for size in sizes])

    return {
        TRAINED.id: (excess(added, "reinforce", *GROUP_SIZES), 0.0, facts),
        NEAR.id: (excess(other, "oracle", 8), FIFTH, facts),
        SAME.id: (excess(other, "oracle", 32, 64), LINE, facts),
    }


@check(QUALITY, cases=STEPS, broken={"group_size": 4}, setting="{problem} ({estimator}), success {worse:g} to {better:g}")
def progress(problem, estimator, worse, better, group_size=64):
    """From each policy to the next better one, whose error is lower."""
    (_, _, before), (_, _, after) = (policies(problem)[quality] for quality in (worse, better))
    return np.log(after[group_size][estimator] / before[64][estimator]), 0.0
