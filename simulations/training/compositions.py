"""The compositions of advantage, ratio, clip and aggregation that are raced to a level of the objective."""

from collections.abc import Mapping
from dataclasses import replace

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.aggregation import AGGREGATIONS
from grpo_theory.estimation.composition import make_estimator
from grpo_theory.estimation.ratio import CLIPS, RATIOS


def wrong_for_half(batch, advantages):
    """A as in dr_grpo, with the wrong sign for the first half of each group: for controls, because the mean update is 0."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        mean = batch.rewards[b].mean()
        for g in range(group_size):
            sign = -1.0 if 2 * g < group_size else 1.0
            advantages[b, g] = sign * (batch.rewards[b, g] - mean)


_PLAIN = replace(find("tic_grpo"), name="no ratio", ratio=RATIOS["none"], clip=CLIPS["none"])
_TOKEN = replace(_PLAIN, name="token ratio, clip by sign", ratio=RATIOS["token"], clip=CLIPS["by sign"])
_GSPO = find("gspo")
ARMS: Mapping[str, Estimator] = {
    "TIC": find("tic_grpo"),
    "GRPO": replace(_TOKEN, name="GRPO", advantage=find("grpo").advantage, aggregation=AGGREGATIONS["own length"]),
    "GSPO": _GSPO,
    "GSPO, wide clip": replace(_GSPO, name="GSPO, wide clip", clip=CLIPS["by sign"]),
    "neither": _TOKEN,
    "ratio alone": replace(_TOKEN, name="trajectory ratio, clip by sign", ratio=RATIOS["trajectory"]),
    "clip alone": replace(_TOKEN, name="token ratio, upper-only clip", clip=CLIPS["upper only"]),
    "no clip": replace(_PLAIN, name="trajectory ratio, no clip", ratio=RATIOS["trajectory"]),
    "no ratio": _PLAIN,
    "broken": replace(find("tic_grpo"), name="broken", advantage=make_estimator("wrong_for_half", wrong_for_half).advantage),
}
"""TIC-GRPO, GRPO and GSPO are as published. The arm `neither` has TIC-GRPO's advantages and aggregation with GRPO's token ratio
and clip. The arms after it change one part of it at a time. The arm `broken` is TIC-GRPO with every second sign wrong."""
