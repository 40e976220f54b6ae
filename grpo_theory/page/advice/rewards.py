"""What rewards alone tell, in words and tables."""

import numpy as np

from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.expected_step import PromptWeights
from grpo_theory.plan.rewards_advice import RewardsAdvice


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


def equal_rewards(advice: Advice) -> Section:
    """Return a table of the share of groups with equal rewards at each size."""
    rows = [("group size", "equal-reward groups", f"{level_text(advice.level)} limits", "")]
    shares = advice.rewards.uniform
    for i, size in enumerate(shares.group_sizes):
        part = shares.measured[i]
        how = "measured" if part == 1.0 else "predicted" if part == 0.0 else "partly predicted"
        limits = interval_text(float(shares.interval.low[i]), float(shares.interval.high[i]))
        mine = ", yours" if size == advice.group_size else ""
        rows.append((f"{size}", percent(float(shares.interval.estimate[i])), limits, how + mine))
    text = ("Groups in which all rewards are equal give no gradient once their mean is subtracted.",)
    return Section("Groups with equal rewards", text, tuple(rows))


def evaluations(advice: Advice) -> Section:
    """Return a table of how many prompts tell two policies apart."""
    cases = advice.rewards.evaluations
    rows: list[tuple[str, ...]] = [
        ("responses a prompt", "prompts, unrelated policies", "prompts, one a few steps on from the other")
    ]
    for responses in sorted({case.responses for case in cases}):
        by_correlation = {case.correlation: case.prompts for case in cases if case.responses == responses}
        rows.append((f"{responses}", *(f"{by_correlation[key]:,}" for key in sorted(by_correlation))))
    text = (
        f"Prompts on which two policies must be evaluated to find a difference of {number(cases[0].difference)} in mean reward "
        "with a chance of 80%: unrelated ones, or with expected rewards that have a correlation of 0.9 over prompts. How many "
        "training runs (seeds) tell two settings apart, one table cannot say: gt.plan.training_seeds_needed asks for two runs "
        "of each.",
    )
    return Section("Telling two policies apart", text, tuple(rows))
