"""An advice in words: its sections in their order, those that need no gradients, and plain text for a terminal."""

from textwrap import fill

import numpy as np

from grpo_theory.page.advice.comparisons import baselines, other_estimators, rests_on
from grpo_theory.page.advice.group_sizes import group_sizes, how_sure
from grpo_theory.page.advice.numbers_needed import equal_rewards, evaluations, rare_prompts, seeds
from grpo_theory.page.advice.recommendation import no_group_size, recommendation, would_change
from grpo_theory.page.advice.whole_run import whole_run
from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.expected_step import PromptWeights
from grpo_theory.plan.rewards_advice import RewardsAdvice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.plan.scores_advice import FEWEST
from grpo_theory.validation import counted

WIDTH = 100


def to_text(advice: Advice, run: RunAdvice | None = None) -> str:
    """Return all sections one under another, lines of at most 100 characters but for tables and code.

    `run` is what `gt.plan.advise_run` returns, if it was asked.
    """
    return "\n\n".join(_section(part) for part in sections(advice, run)) + "\n"


def _section(part: Section) -> str:
    lines = [part.title.upper()]
    lines += [fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") for text in part.paragraphs]
    lines += [f"    {line}" for line in part.code]
    if part.table:
        widths = [max(len(row[i]) for row in part.table) for i in range(len(part.table[0]))]
        lines += [""]
        lines += ["  " + "  ".join(_cell(i, row[i], widths[i]) for i in range(len(row))).rstrip() for row in part.table]
    return "\n".join(lines)


def _cell(column: int, text: str, width: int) -> str:
    """Return a cell of a table: the first column to the left, and words to the left everywhere."""
    numeric = text[:1].isdigit() or text[:1] in "+-"
    return text.rjust(width) if numeric and column > 0 else text.ljust(width)


def sections(advice: Advice, run: RunAdvice | None = None) -> list[Section]:
    """Return what is to be said, the recommendation first: that for a whole run, and then that for a step."""
    return [*(() if run is None else (whole_run(run),)), *_of_a_step(advice)]


def _of_a_step(advice: Advice) -> list[Section]:
    scores = advice.scores
    alone = [rewards_alone(advice), evaluations(advice), seeds(advice)]
    rest = [would_change(advice), assumptions(advice), what_was_read(advice)]
    if scores is not None:
        shown = (recommendation, rests_on, how_sure, group_sizes, *(() if scores.own else (baselines,)), other_estimators)
        found = (section(advice, scores) for section in shown)
        return [*(part for part in found if part is not None), *alone, *rest]
    return [no_group_size(advice), *alone, equal_rewards(advice), rare_prompts(advice), *rest]


def rewards_alone(advice: Advice) -> Section:
    """Return the mean reward, the success rates, and how an estimator weighs prompts."""
    rewards = advice.rewards
    sample, mean = rewards.sample, rewards.sample.mean_reward
    lines = [
        f"Mean reward {number(float(mean.estimate))} ({level_text(advice.level)} limits {number(float(mean.low))} to "
        f"{number(float(mean.high))}). {percent(sample.mixed_responses / sample.responses)} of the responses in the table are "
        "in groups with different rewards: once the group's mean is subtracted, only these give a gradient. Responses to the "
        f"same prompt are correlated. For estimating the mean reward, these {sample.responses:,} responses carry as much "
        f"information as {number(sample.effective_responses)} independent ones."
    ]
    if rewards.rates is not None:
        hard, easy = float(rewards.rates.cdf(0.2)), 1.0 - float(rewards.rates.cdf(0.8))
        lines.append(
            "After removing sampling noise due to small groups, the estimated distribution of success rates has mean "
            f"{percent(rewards.rates.mean)} and standard deviation {percent(np.sqrt(rewards.rates.variance))}. {percent(hard)} "
            f"of the prompts succeed at most 20% of the time, {percent(easy)} more than 80%."
        )
    if rewards.weights is not None:
        lines.append(_weights(rewards.weights))
    why = rates_missing(rewards)
    if why is not None:
        which = "Success rates and prompts' weights" if rewards.rates is None else "Prompts' weights"
        lines.append(f"{which} cannot be given: {why}.")
    return Section("From the rewards alone", tuple(lines))


def _weights(weights: PromptWeights) -> str:
    at = [
        f"{percent(float(weights.shares.estimate[i]))} of the weight "
        f"({interval_text(float(weights.shares.low[i]), float(weights.shares.high[i]))})"
        for i in range(3)
    ]
    return (
        f"With {weights.estimator} at group size {weights.group_size} hard prompts (success at most 20%) get {at[0]} in the "
        f"expected step, middling ones {at[1]}, easy ones (more than 80%) {at[2]}. The limits in brackets hold whatever the "
        "distribution."
    )


def rates_missing(rewards: RewardsAdvice) -> str | None:
    """Return why there are no success rates, or no weights, in words; None if there are."""
    if rewards.binary:
        return rewards.refusal or None
    return (
        f"these need two rewards, failure and success, and the table has {rewards.distinct} different ones. Add a column of 0 "
        f"and 1, as of whether the reward is above a threshold, and name it as the reward ({option('reward')})"
    )


def assumptions(advice: Advice) -> Section:
    """Return what the advice takes to be so."""
    lines = [
        "The prompts are independent draws from those trained on, and the number of responses to a prompt was fixed "
        "beforehand. A trainer that drops groups with equal rewards before it logs them breaks this.",
        "All responses come from one policy, at the temperature and with the settings of training.",
    ]
    if advice.scores is not None:
        lines.append(
            _step(advice)
            + ("" if _keeps(advice) else f"This is known not to hold for {advice.estimator}, which you named. ")
            + "The error of one step's gradient is what counts here, which is not all that counts."
        )
        lines.append(
            "Scores are gradients of the log-probability of whole responses, or random projections (sketches) of them, all by "
            "one and the same matrix. Only the limits of the signal to noise include the error of a sketch: sketch with another "
            "seed to see it."
        )
    return Section("Assumed, and not checked", tuple(lines))


def _keeps(advice: Advice) -> bool:
    """Return whether the recommendation is for the user's own estimator, or for none in particular."""
    return (
        advice.estimator is None or advice.baseline is not None or (advice.scores is not None and advice.scores.own is not None)
    )


def _step(advice: Advice) -> str:
    """Return what is taken to be so of the step."""
    if advice.scores is not None and advice.scores.own is not None:
        return (
            f"The step uses the advantages of {advice.estimator} with its registered constants, its learning rate is tuned, and "
            "each batch is used for one update, so that importance ratios are 1. "
        )
    return (
        "The step uses the recommended baseline, does not divide by the standard deviation, and makes one update for each batch. "
    )


def what_was_read(advice: Advice) -> Section:
    """Return the size of the table, what of it was left out, and what its reader remarked on."""
    sample, scores, (smallest, largest) = advice.rewards.sample, advice.scores, advice.rewards.group_sizes
    sizes = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    lines = [f"{sample.prompts:,} prompts, {sample.responses:,} responses, {sizes} a prompt."]
    if scores is not None and scores.dropped:
        lines.append(
            f"Of what needs gradients {counted(scores.dropped, 'prompt')} with fewer than {FEWEST} responses "
            f"{'was' if scores.dropped == 1 else 'were'} left out; {scores.prompts:,} were used."
        )
    return Section("What was read", (*lines, *advice.notes))
