"""An advice in words: its sections in their order as plain text, and those that need no gradients."""

import numpy as np

from grpo_theory.intervals.comparisons import pairs_needed
from grpo_theory.page.advice.comparisons import baselines, other_estimators, rests_on
from grpo_theory.page.advice.recommendation import group_sizes, how_sure, recommendation, would_change
from grpo_theory.page.advice.whole_run import whole_run
from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent, section_text
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.batches import FEWEST_PROMPTS
from grpo_theory.plan.expected_step import PromptWeights
from grpo_theory.plan.graded_weights import GradedWeights
from grpo_theory.plan.rewards_advice import RewardsAdvice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.plan.scores_advice import FEWEST, Missing
from grpo_theory.plan.seeds import unpaired_seeds_needed
from grpo_theory.plan.success_chances import chance_of_success
from grpo_theory.validation import counted

RARE = (0.5, 0.1, 0.03, 0.01, 0.001)
"""Success rates of prompts, from usual to rare."""


HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row per response",
    "rollouts = gt.RaggedRollouts(prompts, rewards, sketches)",
    "print(gt.page.to_text(gt.plan.advise(rollouts, budget)))",
)


SPREADS, CORRELATION, POWER = (0.5, 1.0, 2.0), 0.5, 0.8
"""Deviations of runs between seeds, in differences to be found; the correlation of two runs of a seed; the chance to find it."""


def to_text(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as text, with lines of at most 100 characters except in tables and code.

    `run` is what `gt.plan.advise_run` returns, if it was asked.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_text(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> print(text.splitlines()[0])
    THE BEST GROUP SIZE FOR ONE STEP CANNOT BE TOLD FROM REWARDS ALONE
    """
    return "\n\n".join(section_text(part) for part in sections(advice, run)) + "\n"


def sections(advice: Advice, run: RunAdvice | None = None) -> list[Section]:
    """Return all sections: how the log was read, what is recommended for a whole run and for a step, and the rest."""
    read = [Section("Read as", advice.reading)] if advice.reading else []
    return [*read, *(() if run is None else (whole_run(run, advice.group_size),)), *_of_a_step(advice, run)]


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
        "in groups with different rewards. Once the group's mean is subtracted, only these give a gradient. Responses to the "
        f"same prompt are correlated. For estimating the mean reward, these {sample.responses:,} responses carry as much "
        f"information as {number(sample.effective_responses)} independent ones."
    ]
    if rewards.rates is not None:
        hard, easy = float(rewards.rates.cdf(0.2)), 1.0 - float(rewards.rates.cdf(0.8))
        lines.append(
            "After removing sampling noise due to small groups, the estimated distribution of success rates has mean "
            f"{percent(rewards.rates.mean)} and standard deviation {percent(np.sqrt(rewards.rates.variance))}. {percent(hard)} "
            f"of the prompts succeed at most 20% of the time, and {percent(easy)} of them more than 80%."
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
        "p (1 - p), with p its success rate. A softmax policy with one token has such gradients. The limits in brackets "
        "hold for every distribution of p. If all gradients had the same length, easy prompts would get "
        f"{percent(float(weights.shares.estimate[2]))}."
    )


def rates_missing(rewards: RewardsAdvice) -> str | None:
    """Return why there are no success rates, or no weights, in words; None if there are."""
    return rewards.refusal or None


def assumptions(advice: Advice) -> Section:
    """Return the assumptions of the advice."""
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
    """Return the assumptions about the step."""
    if advice.scores is not None and advice.scores.own is not None:
        return (
            f"The step uses the advantages of {advice.estimator} with its registered constants, and its learning rate is tuned. "
            "Each batch is used for one update, so importance ratios are 1. "
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


def equal_rewards(advice: Advice) -> Section:
    """Return a table of the groups with equal rewards at each size, and of what a batch without them takes."""
    rows = [
        ("group size", "equal-reward groups", f"{level_text(advice.level)} limits", "prompts", "with signal", "to fill it", "")
    ]
    shares = advice.rewards.uniform
    sizes, prompts = advice.limits.batches()
    for i, size in enumerate(shares.group_sizes):
        part, equal = shares.measured[i], float(shares.interval.estimate[i])
        how = "measured" if part == 1.0 else "predicted" if part == 0.0 else "partly predicted"
        limits = interval_text(float(shares.interval.low[i]), float(shares.interval.high[i]))
        batch = int(prompts[np.searchsorted(sizes, size)])
        fill = f"{batch * int(size) / (1.0 - equal):,.0f}" if equal < 1.0 else "never"
        mine = ", yours" if size == advice.group_size else ""
        told = percent(equal), limits, f"{batch:,}", number(batch * (1.0 - equal)), fill, how + mine
        if not np.isfinite(equal):  # of a log from which groups of equal rewards were left out
            told = "unknown", limits, f"{batch:,}", "unknown", "unknown", mine.removeprefix(", ")
        rows.append((f"{size}", *told))
    text = (
        "Groups in which all rewards are equal give no gradient once their mean is subtracted. For each group size, the table "
        "shows how many prompts a batch has, and how many of these have a signal on average. The column 'to fill it' shows "
        "how many responses dynamic sampling draws on average until every group of the batch has a signal.",
    )
    return Section("Groups with equal rewards", text, tuple(rows))


def rare_prompts(advice: Advice) -> Section:
    """Return a table of the chance that a group of a prompt holds a success."""
    sizes = [int(size) for size in advice.rewards.uniform.group_sizes]
    rows = [("success rate", *(f"G = {size}" for size in sizes))]
    for rate in RARE:
        rows.append((percent(rate), *(percent(float(chance_of_success(rate, size))) for size in sizes)))
    text = (
        "The table shows the chance that a group of G responses contains at least one success, for several success rates. A "
        "prompt whose group has no success is not reinforced.",
    )
    return Section("Whether a rare success is met", text, tuple(rows))


def evaluations(advice: Advice) -> Section:
    """Return a table of how many prompts tell two policies apart, and the error of an evaluation."""
    cases = advice.rewards.evaluations
    rows: list[tuple[str, ...]] = [("responses per prompt", "prompts, unrelated", "error", "prompts, a few steps on", "error")]
    for responses in sorted({case.responses for case in cases}):
        found = sorted((case for case in cases if case.responses == responses), key=lambda case: case.correlation)
        rows.append((f"{responses}", *(cell for case in found for cell in (f"{case.prompts:,}", number(case.error)))))
    text = (
        "The table shows how many prompts are needed to find a difference of "
        f"{number(cases[0].difference)} in mean reward between two policies with a chance of 80%. Two policies are unrelated, or "
        "one is the other a few steps on: then their expected rewards have a correlation of 0.9 over prompts. The error is the "
        "standard error of one policy's mean reward on that many prompts.",
    )
    return Section("Telling two policies apart", text, tuple(rows))


def seeds(advice: Advice) -> Section:
    """Return a table of how many training runs tell two settings apart, for several spreads between seeds."""
    difference = advice.rewards.evaluations[0].difference
    rows = [("deviation between seeds", "runs of each setting, unpaired", "pairs of runs")]
    for spread in SPREADS:
        effect = 1.0 / (spread * np.sqrt(2.0 * (1.0 - CORRELATION)))
        unpaired = unpaired_seeds_needed(spread, 1.0, POWER, advice.level)
        rows.append((number(spread * difference), f"{unpaired:,}", f"{pairs_needed(effect, POWER, advice.level):,}"))
    text = (
        "The table shows how many training runs (seeds) are needed to find a difference of "
        f"{number(difference)} in final mean reward with a chance of 80%. A log of one run cannot show how much runs differ "
        "between seeds, so the first column assumes it. The runs of a pair share their seed, and their results are assumed to "
        f"have a correlation of {number(CORRELATION)}. With two runs of each setting, gt.plan.training_seeds_needed estimates "
        "both.",
    )
    return Section("Telling two settings apart by runs", text, tuple(rows))


def no_group_size(advice: Advice, run: RunAdvice | None) -> Section:
    """Return why the best group size of a step cannot be told, and what to do; a run that was asked for is not recommended."""
    if advice.missing != Missing(scores=True):
        return Section(
            "The best group size for one step cannot be told", (f"These rollouts are not sufficient: {size_missing(advice)}.",)
        )
    whole = (
        f"To get a group size for a whole run from rewards alone, give its number of responses: {option('total')} N. The "
        "planner then simulates small worlds that start at these rewards.",
    )
    return Section(
        "The best group size for one step cannot be told from rewards alone",
        (
            *(whole if run is None else ()),
            "The best size of one step depends on how much the prompts' gradients differ, and the table has no gradients. A "
            "random projection (sketch) of each response's gradient is enough. gt.sketch makes it, and needs Torch:",
        ),
        code=HOW_TO_SKETCH,
    )


def size_missing(advice: Advice) -> str | None:
    """Return what rollouts lack for the best group size, in words; None if they lack nothing."""
    if advice.missing is None:
        return None
    if advice.missing.scores:
        return "the table has no gradients"
    if advice.missing.few:
        return f"{FEWEST_PROMPTS} prompts with {FEWEST} responses or more are needed, and the table has {advice.missing.prompts}"
    return f"in no group of {FEWEST} responses or more do the rewards differ"
