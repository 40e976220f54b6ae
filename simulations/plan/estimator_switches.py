"""What other estimators would gain over the one in use: the planner's estimates, compared with their exact efficiencies.

In the control each logged response is taken for a prompt of its own. Standard errors are then too small by the root of their
number.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from grpo_theory.plan.baseline_gain import LEAVE_ONE_OUT, Pair
from grpo_theory.plan.batches import SizeChoice
from grpo_theory.plan.efficiency import EfficiencyChoice, Estimates
from grpo_theory.plan.estimator_advice import OTHERS, EstimatorLaws, Switch, switches
from simulations.plan.estimator_pilots import CHAINS, HEAVY, LIMITS, LOGGED, efficiencies

JUDGED = ("linear", "graded", *CHAINS, HEAVY)
"""Not the language model's head: 256 prompts set no upper limit on 97 gains of 100 there, and its logs are slow to draw."""
BY_ERROR, DIVIDED = "rloo", "trl_grpo"
OWN = (BY_ERROR, DIVIDED)
"""The estimators in use: the plan of Dr. GRPO is RLOO's, so that the gains over both are the same numbers."""
HOLD, SHOWN = "switch", "shown"

Base = tuple[Estimates, float]
"""The root of an efficiency times ||g||, and its likely value."""


def bases(laws: EstimatorLaws, chosen: Mapping[str, SizeChoice]) -> dict[str, Base]:
    """Return what other estimators are compared with, for each of `OWN`: it with its recommended batch."""
    by_error, divided = chosen[BY_ERROR], chosen[DIVIDED]
    pair = Pair(LEAVE_ONE_OUT, 0.0, by_error.group_size, by_error.batch_size)
    assert isinstance(divided, EfficiencyChoice)
    return {BY_ERROR: laws.of_recommended(pair), DIVIDED: (divided.root, divided.likely_root)}


def judge_switches(
    name: str, laws: EstimatorLaws, chosen: Mapping[str, SizeChoice], level: float, broken: bool
) -> dict[str, dict[str, float]]:
    """Return whether all limits of gains hold at once, and whether a gain is shown, by estimator in use, of one log.

    Parameters
    ----------
    name : str
        The problem.
    laws : EstimatorLaws
        Of the log.
    chosen : mapping
        What is recommended to the users of `OWN`.
    level : float
    broken : bool
        Whether responses are taken for prompts.
    """
    best = {other: laws.choice(other, level) for other in OTHERS if other != DIVIDED}
    choices = {other: choice for other, choice in (best | {DIVIDED: chosen[DIVIDED]}).items() if choice is not None}
    judged = {}
    for own, (root, likely) in bases(laws, chosen).items():
        others = {other: choice for other, choice in choices.items() if other != own and isinstance(choice, EfficiencyChoice)}
        if broken:
            root, others = by_response(root), {one: replace(c, roots=by_response(c.roots)) for one, c in others.items()}
        told = switches(others, root, likely, level)
        judged[own] = judge_gains(name, exact(name, own, chosen[own].group_size), told)
    return judged


def judge_gains(name: str, current: float, told: tuple[Switch, ...]) -> dict[str, float]:
    """Return whether all gains over an efficiency, of the batches that are named, are within limits; and whether one is shown."""
    gains = [exact(name, one.name, one.group_size) / current - 1.0 for one in told]
    hold = all(float(one.gain.low) <= gain <= float(one.gain.high) for gain, one in zip(gains, told, strict=True))
    return {HOLD: float(hold), SHOWN: float(any(one.shown for one in told))}


def by_response(roots: Estimates) -> Estimates:
    """Return estimates with the standard errors of who takes responses for prompts."""
    return Estimates(roots.values, roots.influences / np.sqrt(LOGGED))


def exact(name: str, estimator: str, group_size: int) -> float:
    """Return the exact efficiency of an estimator with an allowed group size."""
    sizes, _ = LIMITS.batches()
    return float(efficiencies(name, estimator)[int(np.searchsorted(sizes, group_size))])
