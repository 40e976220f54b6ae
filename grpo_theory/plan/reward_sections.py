"""What rewards alone tell, in words."""

import numpy as np

from grpo_theory.plan.advice import Advice
from grpo_theory.plan.section import Section, interval_text, level_text, number, percent


def from_rewards(advice: Advice) -> list[Section]:
    """Return the mean reward, success rates and weights, the size of evaluations, and without scores the uniform groups."""
    rewards = advice.rewards
    sample, mean = rewards.sample, rewards.sample.mean_reward
    lines = [
        f"Mean reward {number(float(mean.estimate))} ({level_text(advice)} limits {number(float(mean.low))} to "
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
        weights = rewards.weights
        at = [
            f"{percent(float(weights.shares.estimate[i]))} of the weight "
            f"({interval_text(float(weights.shares.low[i]), float(weights.shares.high[i]))})"
            for i in range(3)
        ]
        lines.append(
            f"With {weights.estimator} at group size {weights.group_size} hard prompts (success at most 20%) get {at[0]} in the "
            f"expected step, middling ones {at[1]}, easy ones (more than 80%) {at[2]}. The limits in brackets hold whatever the "
            "distribution."
        )
    if rewards.missing:
        which = "Success rates and prompts' weights" if rewards.rates is None else "Prompts' weights"
        lines.append(f"{which} cannot be given: {rewards.missing}.")
    found = [Section("From the rewards alone", tuple(lines)), _evaluations(advice)]
    if advice.scores is None:
        rows = [("group size", "equal-reward groups", f"{level_text(advice)} limits", "")]
        shares = rewards.uniform
        for i, size in enumerate(shares.group_sizes):
            measured = (
                "measured" if shares.measured[i] == 1.0 else "predicted" if shares.measured[i] == 0.0 else "partly predicted"
            )
            limits = interval_text(float(shares.interval.low[i]), float(shares.interval.high[i]))
            mine = ", yours" if size == advice.group_size else ""
            rows.append((f"{size}", percent(float(shares.interval.estimate[i])), limits, measured + mine))
        text = ("Groups in which all rewards are equal give no gradient once their mean is subtracted.",)
        found.append(Section("Groups with equal rewards", text, tuple(rows)))
    return found


def _evaluations(advice: Advice) -> Section:
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
