"""U6: leave-one-out compared with no baseline and with the prompt's value: the statements that several studies decide.

The module also measures how far its assumption is from holding, which is reported beside their results.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.theory import baseline_trace, leave_one_out_traces
from simulations.statements import stated

VANILLA_4, VANILLA_64, NEAR, SAME = stated("U6/vanilla, G=4", "U6/vanilla, G=64", "U6/near, G=8", "U6/same, G=32")
CORRELATED, STRICT_CORRELATED = stated("U6/correlated", "U6/strict, correlated")

FIFTH, LINE = 0.2, 0.05
"""What is called near and the same. Over Figure 4's axis errors fall 16-fold: a fifth is a fifteenth of the height, and 5% is a
line's width."""


WRONG_SIGN, PAIRS = "oracle, wrong sign", "means of pairs"
"""Broken estimators. In the first, V is added to the reward instead of subtracted, always worse than no baseline. In the second
the baseline is one other reward, leave-one-out in groups of 2, whose second-order term does not fall with G."""


def moments_of(problem):
    """Return the moments of a problem of the gallery at its theta."""
    found = gt.gallery.problem(problem)
    return gt.moments(found, found.theta)


def errors(moments, group_size):
    """Return the mean error of one group about its prompt's gradient, by estimator, those of controls among them."""
    traces = {
        "reinforce": baseline_trace(moments, 0.0) / group_size,
        "oracle": baseline_trace(moments, moments.value) / group_size,
        "optimal": baseline_trace(moments, moments.optimal_baseline) / group_size,
        "rloo": leave_one_out_traces(moments, group_size),
        WRONG_SIGN: baseline_trace(moments, -moments.value) / group_size,
        PAIRS: leave_one_out_traces(moments, 2) * 2.0 / group_size,
    }
    return {name: float(moments.prompt_weights @ trace) for name, trace in traces.items()}


def correlations(moments):
    """Return how far ||W||^2 and Z are from uncorrelated, and the share of prompts where no baseline beats V."""
    f, sizes = moments.prompt_weights, np.abs(moments.score_reward_correlation)
    wins = moments.optimal_baseline < moments.value / 2.0
    return {"correlation_mean": float(f @ sizes), "correlation_max": float(np.max(sizes)), "vanilla_wins": float(f @ wins)}


def assumption_facts(measured):
    """Return those three as the facts of a claim."""
    return {
        "mean |corr(||W||^2, Z)|": measured["correlation_mean"],
        "max |corr|": measured["correlation_max"],
        "share of prompts where no baseline beats V": measured["vanilla_wins"],
    }
