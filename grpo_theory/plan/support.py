"""What the recommended baseline and group size rest on, in words: what they were compared with, and what can make them wrong."""

import numpy as np

from grpo_theory.plan.advice import Advice, ScoresAdvice
from grpo_theory.plan.baseline_gain import Pair, Rival
from grpo_theory.plan.section import Section, interval_text, level_text, number, percent
from grpo_theory.validation import counted

BASELINES = {
    "none": "none",
    "mean over prompts": "mean reward of all prompts",
    "leave-one-out mean": "leave-one-out mean of the group",
    "shrinkage": "mixture of these two means",
    "value": "each prompt's true mean reward",
    "optimal": "each prompt's best constant",
}
"""What each baseline is, in words."""
COMPARED = (
    "Four baselines were compared, each with every allowed group size: no baseline, the leave-one-out mean of the group, the "
    "mean reward of all prompts, and a mixture of these two means. All four estimates are unbiased for the same gradient, so "
    "their squared errors can be compared. Name your estimator (--estimator) to have the best batch for its own baseline."
)


def with_baseline(pair: Pair) -> str:
    """Return a pair's baseline, in words that go after "use" and "with"."""
    if pair.name == "shrinkage":
        return f"a mixture as baseline ({percent(pair.share)} mean reward of all prompts, the rest leave-one-out mean)"
    return {
        "none": "no baseline",
        "mean over prompts": "the mean reward of all prompts as baseline",
        "leave-one-out mean": "the leave-one-out baseline",
    }[pair.name]


def rests_on(advice: Advice, scores: ScoresAdvice) -> Section:
    """Return what the recommendation was compared with, and what it depends on."""
    pair, rivals = scores.recommended.pair, scores.recommended.rivals
    lines = [COMPARED if advice.estimator is None else _own(advice, pair)]
    lines += [_rival(advice, rival) for rival in rivals]
    if not rivals:
        lines.append("The data do not show that another baseline has less error.")
    own = _risks(advice, pair)
    lines += own
    about = [line for rival in rivals if rival.better for line in _risks(advice, rival.pair) if line not in own]
    lines += [f"About the alternative: {line}" for line in about]
    return Section("What it rests on", tuple(lines))


def _own(advice: Advice, pair: Pair) -> str:
    """Return how the recommendation stands to the estimator that the user named."""
    if advice.baseline is not None:
        return f"You named {advice.estimator}, so the recommendation keeps its baseline: {with_baseline(pair)}."
    return (
        f"You named {advice.estimator}. On average it does not estimate the gradient of the mean reward, or it is not known to. "
        "So its squared error cannot be compared, and the best group size for it can be another. The recommendation is for the "
        "leave-one-out baseline without division. Estimators with different means are compared by their efficiency, which needs "
        "more than this table."
    )


def _rival(advice: Advice, rival: Rival) -> str:
    pair, gain = rival.pair, rival.gain
    known = np.isfinite(float(gain.low))
    text = interval_text(float(gain.low), float(gain.high)) if known else f"{percent(float(gain.high))} at most"
    limits = f"{level_text(advice)} limits {text}"
    batch = f"{with_baseline(pair)} and groups of {pair.group_size:,} ({counted(pair.batch_size, 'prompt')})"
    if not rival.better:
        return (
            f"With {with_baseline(pair)}, groups of {pair.group_size:,} are best ({counted(pair.batch_size, 'prompt')}). The "
            f"recommendation has {percent(float(gain.estimate))} less error than that ({limits})."
        )
    text = f"An alternative is {batch}. Its error is estimated to be {percent(float(gain.estimate))} less ({limits})"
    if rival.shown:
        return f"{text}."
    return f"{text}, which the data do not show: the simpler or safer baseline is recommended."


def _risks(advice: Advice, pair: Pair) -> list[str]:
    """Return what can make a baseline worse than it looks."""
    lines, values = [], advice.rewards.range
    if pair.name == "none":
        mean = number(float(advice.rewards.sample.mean_reward.estimate))
        between = "are" if advice.rewards.binary else "run from"
        joint = "and" if advice.rewards.binary else "to"
        lines.append(
            "Without a baseline, the error depends on where the rewards have their zero. These rewards "
            f"{between} {number(values[0])} {joint} {number(values[1])}, with mean {mean}. Adding a constant to all rewards "
            "changes the error, and so does a higher mean reward later in training: plan again then."
        )
    elif pair.name in ("mean over prompts", "shrinkage"):
        lines.append(
            "The mean reward of all prompts must leave out the prompt itself. It is taken to be as well known as from the "
            f"{counted(advice.rewards.sample.prompts, 'prompt')} of this table; a batch with fewer prompts knows it less well."
        )
    if pair.name in ("none", "mean over prompts") and pair.group_size == 2 and advice.limits.cost_prompt == 0.0:
        lines.append(
            "This baseline does not use the group. Groups of 1 were not considered, because trainers that work by groups need 2; "
            "with this baseline their error would be smaller still."
        )
    return lines
