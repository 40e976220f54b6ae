"""An advice in words: its sections in their order, those that need no gradients, and plain text for a terminal."""

import numpy as np

from grpo_theory.page.advice.comparisons import baselines, other_estimators, rests_on
from grpo_theory.page.advice.group_sizes import group_sizes, how_sure
from grpo_theory.page.advice.numbers_needed import equal_rewards, evaluations, rare_prompts, seeds
from grpo_theory.page.advice.recommendation import no_group_size, recommendation, would_change
from grpo_theory.page.advice.whole_run import whole_run
from grpo_theory.page.plain_text import section_text
from grpo_theory.page.section import Section, interval_text, level_text, number, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.expected_step import PromptWeights
from grpo_theory.plan.graded_weights import GradedWeights
from grpo_theory.plan.rewards_advice import RewardsAdvice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.plan.scores_advice import FEWEST
from grpo_theory.validation import counted


def to_text(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as text, with lines of at most 100 characters except in tables and code.

    `run` is what `gt.plan.advise_run` returns, if it was asked.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_text(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> print(text.splitlines()[0])
    THE BEST GROUP SIZE CANNOT BE TOLD FROM REWARDS ALONE
    """
    return "\n\n".join(section_text(part) for part in sections(advice, run)) + "\n"


def sections(advice: Advice, run: RunAdvice | None = None) -> list[Section]:
    """Return what is to be said: what was taken for what, what is recommended for a whole run and for a step, and the rest."""
    read = [Section("Read as", advice.reading)] if advice.reading else []
    return [*read, *(() if run is None else (whole_run(run),)), *_of_a_step(advice, run)]


def _of_a_step(advice: Advice, run: RunAdvice | None) -> list[Section]:
    scores = advice.scores
    alone = [rewards_alone(advice), *([evaluations(advice), seeds(advice)] if advice.rewards.evaluations else [])]
    rest = [would_change(advice), assumptions(advice), what_was_read(advice)]
    if scores is not None:
        shown = (recommendation, rests_on, how_sure, group_sizes, *(() if scores.own else (baselines,)), other_estimators)
        found = (section(advice, scores) for section in shown)
        return [*(part for part in found if part is not None), *alone, *rest]
    return [no_group_size(advice, run), *alone, equal_rewards(advice), rare_prompts(advice), *rest]


def rewards_alone(advice: Advice) -> Section:
    """Return the mean reward, the success rates, and how an estimator weighs prompts."""
    rewards = advice.rewards
    sample, mean = rewards.sample, rewards.sample.mean_reward
    of_kept = " of the groups that were kept" if rewards.chosen else ""
    lines = [
        f"Mean reward{of_kept} {number(float(mean.estimate))} ({level_text(advice.level)} limits {number(float(mean.low))} to "
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
    if not rewards.binary and sample.variance is not None:
        lines.append(
            f"The table has {rewards.distinct} different rewards. Between prompts, expected rewards have a standard deviation of "
            f"{number(np.sqrt(max(sample.variance.between, 0.0)))}. Within a prompt, the standard deviation of the rewards is "
            f"{number(np.sqrt(sample.variance.within))}."
        )
    why = rates_missing(rewards)
    if why is not None:
        which = "Success rates and prompts' weights" if rewards.binary and rewards.rates is None else "Prompts' weights"
        lines.append(f"{which} cannot be given: {why}.")
    return Section("From the rewards alone", tuple(lines))


def _weights(weights: PromptWeights | GradedWeights) -> str:
    """Return how prompts share the expected step, beside their shares of the prompts."""
    shares, prompts = weights.step_shares, weights.prompts
    at = [
        f"{percent(float(shares.estimate[i]))} of the expected step "
        f"({interval_text(float(shares.low[i]), float(shares.high[i]))})"
        for i in range(3)
    ]
    of = [percent(float(one)) for one in prompts.estimate]
    by = f"With {weights.estimator} at group size {weights.group_size}, "
    if isinstance(weights, GradedWeights):
        return (
            f"{by}prompts whose mean reward is in the lowest fifth of the range ({of[0]} of the prompts) get {at[0]}. Those in "
            f"the highest fifth ({of[2]}) get {at[2]}, and the others ({of[1]}) {at[1]}. This assumes that the length of a "
            "prompt's gradient is proportional to the variance of its rewards."
        )
    return (
        f"{by}hard prompts (success at most 20%, {of[0]} of the prompts) get {at[0]}. Middling ones ({of[1]}) get {at[1]}, and "
        f"easy ones (more than 80%, {of[2]}) {at[2]}. This assumes that the length of a prompt's gradient is proportional to "
        "p (1 - p), with p its success rate, as for a softmax policy with one token. The limits in brackets hold for every "
        "distribution of p. If all gradients had the same length, easy prompts would get "
        f"{percent(float(weights.shares.estimate[2]))}."
    )


def rates_missing(rewards: RewardsAdvice) -> str | None:
    """Return why there are no success rates, or no weights, in words; None if there are."""
    return rewards.refusal or None


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
            + "Only the error of one step's gradient is considered; training depends on other things too."
        )
        lines.append(
            "Scores are gradients of the log-probability of whole responses, or random projections (sketches) of them, all by "
            "the same matrix. Only the limits of the signal to noise include the error of a sketch; sketch with another seed to "
            "see it."
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
    lines = [f"{sample.prompts:,} prompts, {sample.responses:,} responses, {sizes} per prompt."]
    if scores is not None and scores.dropped:
        lines.append(
            f"For the advice that needs gradients, {counted(scores.dropped, 'prompt')} with fewer than {FEWEST} responses "
            f"{'was' if scores.dropped == 1 else 'were'} left out; {scores.prompts:,} were used."
        )
    return Section("What was read", (*lines, *advice.notes))
