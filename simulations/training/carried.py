"""What becomes of the best group size of one setting in another one, and of a loss at another budget."""

import numpy as np
import pandas as pd

from grpo_theory.evidence import Evidence
from grpo_theory.evidence.reading import highest
from simulations.training.grid import HALF_DOUBLING


def carried(before: pd.DataFrame, after: pd.DataFrame) -> tuple[Evidence, Evidence, dict[str, float]]:
    """Return the evidence of the group size that lost least in one setting, in another one; its control's, and facts.

    The control chooses as one does who compares group sizes at equal numbers of prompts, not at equal budgets: the largest.
    Losses are indexed by group size.
    """
    best, best_there, largest = int(highest(-before["estimate"])), int(highest(-after["estimate"])), int(before.index.max())
    facts = {"G chosen": float(best), "best G there": float(best_there), "G of the control": float(largest)}
    return excess(after, best), excess(after, largest), facts


def excess(losses: pd.DataFrame, chosen: int) -> Evidence:
    """Return what a group size loses beyond half a doubling's worth of the rival from which it is the farthest, in its errors."""
    own, rivals = losses.loc[chosen], losses.drop(chosen)
    # A negative loss is a gain, of which the chosen size must keep the same share.
    factors = np.where(rivals["estimate"] >= 0.0, HALF_DOUBLING, 1.0 / HALF_DOUBLING)
    excesses = own["estimate"] - factors * rivals["estimate"]
    errors = np.hypot(own["standard_error"], factors * rivals["standard_error"])
    at = highest(excesses / errors)
    return Evidence(
        float(excesses[at]),
        0.0,
        float(errors[at]),
        replications=int(losses["replications"].min()),
        comparisons=len(rivals),
    )


def off_one_curve(most: pd.Series, least: pd.Series, factor: float, margin: float) -> Evidence:
    """Return by what share a loss at the larger budget, times how much larger it is, differs from that at the smaller one."""
    ratio = factor * most["estimate"] / least["estimate"]
    error = factor * np.hypot(most["standard_error"], ratio / factor * least["standard_error"]) / abs(least["estimate"])
    runs = int(min(most["replications"], least["replications"]))
    return Evidence(abs(float(ratio) - 1.0), margin, float(error), replications=runs)
