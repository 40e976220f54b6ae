"""What the recommendation was compared with, in words: other baselines, and other estimators with their own best batch."""

import numpy as np

from grpo_theory.page.section import Section, interval_text, level_text, number, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.baseline_gain import Pair, Rival
from grpo_theory.plan.efficiency import EfficiencyChoice
from grpo_theory.plan.scores_advice import ScoresAdvice
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
    "Four baselines were compared, each with every allowed group size. They are: no baseline, the leave-one-out mean of the "
    "group, the mean reward of all prompts, and a mixture of these two means. None of them divides by a deviation. All four "
    "estimates are unbiased for the same gradient, so their squared errors can be compared. The recommendation is for the "
    "leave-one-out mean, which trainers can be set to. To plan for your own estimator, name it with --estimator."
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
    if scores.own is not None:
        return own_estimator(advice, scores.own, scores.by_efficiency.prompts)
    pair, rivals = scores.recommended.pair, scores.recommended.rivals
    lines = [COMPARED if advice.estimator is None else _own(advice, scores)]
    lines += [_rival(advice, rival) for rival in rivals]
    if not rivals:
        lines.append("The data do not show that another baseline has less error.")
    own = _risks(advice, pair)
    lines += own
    about = [line for rival in rivals if rival.better for line in _risks(advice, rival.pair) if line not in own]
    lines += [f"About the alternative: {line}" for line in about]
    return Section("What it rests on", tuple(lines))


def _own(advice: Advice, scores: ScoresAdvice) -> str:
    """Return how the recommendation stands to the estimator that the user named."""
    pair = scores.recommended.pair
    if advice.baseline is not None:
        return f"You named {advice.estimator}, so the recommendation keeps its baseline: {with_baseline(pair)}."
    return (
        f"You named {advice.estimator}. On average it does not estimate the gradient of the mean reward, or it is not known to. "
        "So its squared error cannot be compared, and its best group size may differ. The recommendation is for the "
        "leave-one-out baseline without division. Estimators with different means are compared by their efficiency. This table "
        f"does not give it: {scores.by_efficiency.refusal}."
    )


def _rival(advice: Advice, rival: Rival) -> str:
    pair, gain = rival.pair, rival.gain
    known = np.isfinite(float(gain.low))
    text = interval_text(float(gain.low), float(gain.high)) if known else f"{percent(float(gain.high))} at most"
    limits = f"{level_text(advice.level)} limits {text}"
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
            "The mean reward of all prompts must leave out the prompt itself. Its error is taken to be that of a mean over "
            f"{counted(advice.rewards.sample.prompts, 'prompt')}, as in this table; a smaller batch estimates it less well."
        )
    if pair.name in ("none", "mean over prompts") and pair.group_size == 2 and advice.limits.cost_prompt == 0.0:
        lines.append(
            "This baseline does not use the group. Groups of 1 were not considered, because trainers that work by groups need 2; "
            "with this baseline their error would be smaller still."
        )
    return lines


def baselines(advice: Advice, scores: ScoresAdvice) -> Section:
    """Return a table of the noise under each baseline, and how strong the signal is."""
    table, signal = scores.baselines, scores.signal
    rows = [("baseline", "noise against leave-one-out", f"{level_text(advice.level)} limits")]
    relative = table.relative
    for i, name in enumerate(table.names):
        if name == "leave-one-out mean":
            rows.append((BASELINES[name], "0", "compared with this"))
        elif np.isfinite(relative.estimate[i]):
            limits = interval_text(float(relative.low[i]), float(relative.high[i]), signed=True)
            rows.append((BASELINES[name], percent(float(relative.estimate[i]), signed=True), limits))
        else:
            rows.append((BASELINES[name], "unknown", ""))
    lines = [
        f"The table shows what can be subtracted from the rewards, and the noise that is left in groups of {table.group_size:,} "
        "on these prompts. The last two baselines use quantities you cannot know in practice; they show how much a better "
        "baseline could gain. The estimate in the last row is biased towards the row above it.",
        f"The best mixture takes {percent(table.shrinkage)} of the mean reward of all prompts and "
        f"{percent(1.0 - table.shrinkage)} of the leave-one-out mean. If each response is counted in its own group's mean, the "
        f"gradient is multiplied by {number(1.0 - 1.0 / table.group_size)} and is otherwise the same.",
        _signal(advice, float(signal.estimate), float(signal.low), float(signal.high))
        + f" The limits include the {percent(np.sqrt(2.0 / scores.width))} error that a sketch of {scores.width:,} numbers adds "
        "to a squared length.",
    ]
    return Section("Baseline, and how strong the signal is", tuple(lines), tuple(rows))


def _signal(advice: Advice, estimate: float, low: float, high: float) -> str:
    limits = f"{number(low)} or more" if not np.isfinite(high) else f"{number(low)} to {number(high)}"
    if low > 0.0:
        told = (
            "Signal to noise: with the recommendation, the squared length of the gradient is "
            f"{number(estimate)} times the squared error of one step ({level_text(advice.level)} limits {limits})."
        )
    else:
        told = (
            "The data do not tell the gradient from 0: with the recommendation, its squared length is "
            f"{limits} times the squared error of one step."
        )
    return f"{told} Below 1, the noise of a step is longer than the gradient."


def best_of_sizes(advice: Advice, scores: ScoresAdvice) -> str:
    """Return in what the recommended batch of the user's estimator is best, and among which."""
    own = scores.by_efficiency
    text = (
        f" With {advice.estimator} this one has the largest estimated efficiency of all allowed batches: one training step gains "
        f"most. Groups of up to {own.largest:,} were compared, the number of responses logged for each prompt."
    )
    if scores.choice.best == scores.choice.group_sizes.size - 1 and scores.choice.group_size == own.largest > 2:
        text += " Larger groups may be better, but this table cannot tell: log more responses to each prompt."
    return text


def without_lengths(advice: Advice, scores: ScoresAdvice) -> str:
    """Return the warning that weights of tokens by lengths are left out; empty for other estimators."""
    if not scores.by_efficiency.by_length:
        return ""
    return (
        f" {advice.estimator} weighs tokens by the lengths of responses, which gradients of whole responses cannot show, so the "
        "recommendation is for its advantages alone."
    )


def yours(advice: Advice, scores: ScoresAdvice) -> str:
    """Return how the group size in use compares, if it is another than the recommended one."""
    choice, size = scores.choice, advice.group_size
    assert size is not None
    if size not in choice.group_sizes:
        return (
            f"Your group size {size:,} is above the {scores.by_efficiency.largest:,} responses logged for each prompt, so it "
            f"cannot be compared for {advice.estimator}."
        )
    index, loss = choice.at(size), choice.loss
    tail = "" if not choice.candidates[index] else " The data cannot tell them apart."
    return (
        f"Compared with your group size {size:,}, the recommended batch has {percent(loss.estimate[index])} more efficiency with "
        f"{advice.estimator} ({level_text(advice.level)} limits {interval_text(loss.low[index], loss.high[index])}).{tail}"
    )


def own_estimator(advice: Advice, own: EfficiencyChoice, prompts: int) -> Section:
    """Return what the recommendation for the user's estimator rests on."""
    value = percent(float(own.efficiency[own.best]))
    lines = (
        f"You named {advice.estimator}. Its average update is not a multiple of the gradient of the mean reward, so its squared "
        "error says little. Batches are compared by efficiency: what one step gains at its best learning rate, relative to a "
        f"step along the exact gradient. For the recommendation it is estimated to be {value}.",
        f"Any {own.group_size:,} of the responses to a prompt are a group of {own.group_size:,}. Averages over all such "
        f"subgroups, of {counted(prompts, 'prompt')}, give the efficiency at each group size up to the number of logged "
        "responses. For larger groups of this estimator no unbiased estimate exists.",
    )
    return Section("What it rests on", lines)


def other_estimators(advice: Advice, scores: ScoresAdvice) -> Section | None:
    """Return what switching to another estimator would gain, and how strong the signal is with the user's; None if unknown."""
    own, lines = scores.by_efficiency, []
    if own.choice is not None:
        lines.append(_signal_by_efficiency(advice, scores))
    rows: list[tuple[str, ...]] = []
    if own.others:
        lines.append(
            "The table shows other estimators, each with its own best group size and learning rate, and how much more efficiency "
            "they have than the recommendation. Below 0% they have less. The limits hold for all rows at once."
        )
        if not any(one.shown for one in own.others):
            lines.append("The data do not show that any of them is more efficient than the recommendation.")
        rows = [("estimator", "group size", "prompts", "efficiency", f"{level_text(advice.level)} limits")]
        rows += [
            (
                one.name,
                f"{one.group_size:,}",
                f"{one.batch_size:,}",
                percent(float(one.gain.estimate), signed=True),
                interval_text(float(one.gain.low), float(one.gain.high), signed=True),
            )
            for one in own.others
        ]
    return Section("Other estimators", tuple(lines), tuple(rows)) if lines else None


def _signal_by_efficiency(advice: Advice, scores: ScoresAdvice) -> str:
    """Return the signal to noise by efficiency, in words."""
    low, high = float(scores.signal.low), float(scores.signal.high)
    limits = f"{number(low)} or more" if high == float("inf") else f"{number(low)} to {number(high)}"
    told = (
        f"it is estimated to be {number(float(scores.signal.estimate))} ({level_text(advice.level)} limits {limits})"
        if low > 0.0
        else f"it is {limits}, so the data do not tell the gradient from 0"
    )
    return (
        "Signal to noise is efficiency/(1 - efficiency). For an estimator without division this is the squared length of the "
        f"gradient divided by the squared error of one step. With the recommendation {told}. Below 1, the noise of a "
        "step is longer than its signal."
    )
