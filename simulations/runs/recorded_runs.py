"""Runs of the trained model as recorded: a measure of each arm at the rates that all its seeds have."""

from collections.abc import Iterable

import numpy as np

from grpo_theory.data import TrainedRun
from grpo_theory.validation import Array

RATIOS = {"by sign": "PPO's clip", "upper only": "clip from above", "unclipped": "ratio, no clip", "none": "no ratio"}
"""What an arm that reuses rollouts is called, by its use of ratios in the records."""

Arm = tuple[str, int | str]
"""An estimator and a group size; or a use of ratios, where rollouts serve several updates."""


def arms_of(runs: Iterable[TrainedRun], measure: str = "success") -> dict[Arm, Array]:
    """Return a measure of each arm at the rates that all seeds have, (rates, seeds, looks)."""
    by_rate: dict[tuple[Arm, float], dict[int, Array]] = {}
    for run in runs:
        arm = run.arm.estimator, run.arm.group_size if run.arm.reuse == 1 else RATIOS[run.arm.ratio]
        by_rate.setdefault((arm, run.arm.rate), {})[run.seed] = getattr(run, measure)
    seeds = max(map(len, by_rate.values()))
    found: dict[Arm, list[list[Array]]] = {}
    for (arm, _), own in sorted(by_rate.items(), key=lambda item: item[0][1]):
        if len(own) == seeds:
            found.setdefault(arm, []).append([own[seed] for seed in sorted(own)])
    return {arm: np.array(values) for arm, values in found.items()}
