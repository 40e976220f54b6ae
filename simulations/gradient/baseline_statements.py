"""U6: leave-one-out compared with no baseline and with the prompt's value: the statements that several studies decide.

The module also measures how far its assumption is from holding, which is reported beside their results.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import grpo_theory as gt
from simulations.statements import stated

VANILLA_4, VANILLA_64, NEAR, SAME = stated("U6/vanilla, G=4", "U6/vanilla, G=64", "U6/near, G=8", "U6/same, G=32")
CORRELATED, STRICT_CORRELATED = stated("U6/correlated", "U6/strict, correlated")

FIFTH, LINE = 0.2, 0.05
"""What is called near and the same. Over Figure 4's axis errors fall 16-fold: a fifth is a fifteenth of the height, and 5% is a
line's width."""


def correlations(moments: gt.Moments) -> dict[str, float]:
    """Return how far ||W||^2 and Z are from uncorrelated, and the share of prompts where no baseline beats V."""
    f, sizes = moments.prompt_weights, np.abs(moments.score_reward_correlation)
    wins = moments.optimal_baseline < moments.value / 2.0
    return {"correlation_mean": float(f @ sizes), "correlation_max": float(np.max(sizes)), "vanilla_wins": float(f @ wins)}


def assumption_facts(measured: Mapping[Any, Any]) -> dict[str, float]:
    """Return those three as the facts of a claim."""
    return {
        "mean |corr(||W||^2, Z)|": measured["correlation_mean"],
        "max |corr|": measured["correlation_max"],
        "share of prompts where no baseline beats V": measured["vanilla_wins"],
    }
