"""How many groups, responses, prompts and runs are needed, from rewards alone, in words and tables."""

import numpy as np

from grpo_theory.intervals.paired import pairs_needed
from grpo_theory.page.section import Section, interval_text, level_text, number, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.met_prompts import chance_of_success
from grpo_theory.plan.seeds import unpaired_seeds_needed

RARE = (0.5, 0.1, 0.03, 0.01, 0.001)
"""Success rates of prompts, from usual to rare."""
SPREADS, CORRELATION, POWER = (0.5, 1.0, 2.0), 0.5, 0.8
"""Deviations of runs between seeds, in differences to be found; the correlation of two runs of a seed; the chance to find it."""


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
        "shows how many prompts a batch has, and how many of them have a group with a signal on average. The column 'to fill it' "
        "shows how many responses dynamic sampling draws on average until every group of the batch has a signal.",
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
