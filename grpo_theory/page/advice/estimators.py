"""The user's own estimator, planned by efficiency, and what other estimators with their own best batch would gain, in words."""

from grpo_theory.page.section import Section, interval_text, level_text, number, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.efficiency import EfficiencyChoice
from grpo_theory.plan.scores_advice import ScoresAdvice
from grpo_theory.validation import counted


def best_of_sizes(advice: Advice, scores: ScoresAdvice) -> str:
    """Return in what the recommended batch of the user's estimator is best, and among which."""
    own = scores.by_efficiency
    text = (
        f" Of all allowed batches in groups of at most {own.largest:,}, the number of responses logged for each prompt, this one "
        f"has the largest estimated efficiency with {advice.estimator}: one training step gains most."
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
        lines.append(_signal(advice, scores))
    rows: list[tuple[str, ...]] = []
    if own.others:
        lines.append(
            "The table shows other estimators, each with its own best group size and learning rate, and how much more efficiency "
            "they have than the recommendation. Below 0% they have less. The limits hold for all rows at once."
        )
        if not any(one.shown for one in own.others):
            lines.append("The data do not show that one of them has more.")
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


def _signal(advice: Advice, scores: ScoresAdvice) -> str:
    """Return the signal to noise by efficiency, in words."""
    low, high = float(scores.signal.low), float(scores.signal.high)
    limits = f"{number(low)} or more" if high == float("inf") else f"{number(low)} to {number(high)}"
    told = (
        f"it is estimated to be {number(float(scores.signal.estimate))} ({level_text(advice.level)} limits {limits})"
        if low > 0.0
        else f"it is {limits}, so the data do not tell the gradient from 0"
    )
    return (
        "Signal to noise is the efficiency divided by what it lacks to 1. For an estimator without division it is the squared "
        f"length of the gradient over the squared error of one step. With the recommendation {told}. Below 1, the noise of a "
        "step is longer than its signal."
    )
