"""U6: leave-one-out compared with no baseline and with the prompt's value: the statements that several studies decide.

The module also measures how far its assumption is from holding, which is reported beside their results.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import Statement
from simulations.sources import DEMYSTIFYING, OURS

VANILLA_4 = Statement(
    "U6/vanilla, G=4", f"{DEMYSTIFYING}, Fig. 4", "leave-one-out below no baseline, G = 4", "ordering", measured=True
)
VANILLA_64 = Statement(
    "U6/vanilla, G=64", f"{DEMYSTIFYING}, Fig. 4", "leave-one-out below no baseline, G = 64", "ordering", measured=True
)
NEAR = Statement(
    "U6/near, G=8",
    f"{DEMYSTIFYING}, Fig. 4",
    "leave-one-out is near the oracle: within 20% of its error at G = 8",
    "upper bound",
    measured=True,
)
SAME = Statement(
    "U6/same, G=32",
    f"{DEMYSTIFYING}, Fig. 4",
    "leave-one-out is indistinguishable from the oracle: within 5% of its error at G = 32 and at 64",
    "upper bound",
    measured=True,
)
CORRELATED = Statement(
    "U6/correlated",
    f"beyond {DEMYSTIFYING}, Corollary 5",
    "the same as printed, where ||W||^2 and Z are correlated",
    "upper bound",
    formula=r"The same as printed, where $\|W\|^2$ and $Z$ are correlated.",
    whose=OURS,
)
STRICT_CORRELATED = Statement(
    "U6/strict, correlated",
    f"beyond {DEMYSTIFYING}, Corollary 5",
    "leave-one-out less noisy than no baseline as G grows, where ||W||^2 and Z are correlated",
    "ordering",
    formula=r"Leave-one-out is less noisy than no baseline as $G$ grows, where $\|W\|^2$ and $Z$ are correlated.",
    whose=OURS,
)

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
