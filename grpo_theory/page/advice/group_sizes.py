"""How sure the best group size is, and what each size loses, in words and a table."""

import numpy as np

from grpo_theory.page.advice.comparisons import with_baseline
from grpo_theory.page.section import Section, interval_text, level_text, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.cost import Limits, limits_groups
from grpo_theory.plan.effective import UniformShares
from grpo_theory.plan.rewards_advice import SHOWN
from grpo_theory.plan.scores_advice import ScoresAdvice

PREDICTED = "*"
"""Marks a share that is estimated by a fitted model."""
EFFICIENCY_KNOWS = (
    "The efficiency already accounts for groups with equal rewards, whatever the estimator makes of them, so they are no further "
    "argument against small groups."
)


def how_sure(advice: Advice, scores: ScoresAdvice) -> Section:
    """Return which sizes the data cannot tell from the best, and what the recommended one may lose."""
    choice, largest, level = scores.choice, int(scores.choice.group_sizes[-1]), level_text(advice.level)
    if choice.group_sizes.size == 1:
        only = f"Only this group size is allowed ({binding(advice.limits)}): there is no choice."
        return Section("How sure", (only, *_tails(advice, scores)))
    own, using = scores.own is not None, "this baseline" if scores.own is None else advice.estimator
    if choice.low == choice.high:
        worse = f"less efficiency with {using}" if own else f"a larger error with {using}"
        sure = f"At {level} confidence, every other {'compared' if own else 'permitted'} group size has {worse}."
        return Section("How sure", (sure, *_tails(advice, scores)))
    span = (
        f"between {choice.low:,} and {choice.high:,}"
        if choice.bounded
        else f"between {choice.low:,} and {largest:,}, the largest {'that was compared' if own else 'allowed'}"
    )
    holes = " Sizes in between that waste budget by rounding are left out." if len(choice.runs) > 1 and not own else ""
    lines = [f"At {level} confidence, the best group size with {using} is {span}.{holes} The data cannot tell these sizes apart."]
    risk = choice.risk
    if np.isfinite(risk):
        lines.append(
            f"If {choice.group_size:,} is not the best size, the best has at most {percent(risk)} more efficiency. That is as if "
            f"{percent(risk / (1.0 + risk))} of the gain of a step were given away."
            if own
            else f"If {choice.group_size:,} is not the best size, it has at most {percent(risk)} more error than the best. "
            f"That is as if {percent(risk / (1.0 + risk))} of the responses were thrown away."
        )
    else:
        lines.append("The data set no limit on how much worse than the best the recommended size might be.")
    if advice.enough:
        lines.append(
            f"This is within the tolerance of {percent(advice.tolerance)}: more rollouts would not change the advice by much."
        )
        return Section("How sure", (*lines, *_tails(advice, scores)))
    lines.append(f"The data are not sufficient: this is more than the tolerance of {percent(advice.tolerance)}.")
    if scores.prompts_needed is None:
        lines.append(
            "The table is too small to say how many prompts would be sufficient, or more than 4,096 times as many would be "
            "needed."
        )
    else:
        lines.append(
            f"About {scores.prompts_needed:,} prompts like the {scores.prompts:,} here, with as many responses each, would be "
            "sufficient (limits narrow with the square root of the number of prompts)."
        )
    return Section("How sure", (*lines, *_tails(advice, scores)))


def binding(limits: Limits) -> str:
    """Return the limits that keep out larger groups, in words."""
    names = limits_groups(limits)
    return " and ".join(f"{option(name)} {getattr(limits, name):,}" for name in names) if names else "the budget"


def _tails(advice: Advice, scores: ScoresAdvice) -> tuple[str, ...]:
    """Return the warning of a table in which few prompts make most of the error; nothing of other tables."""
    if not advice.heavy_tailed:
        return ()
    held = percent(scores.leave_one_out.constants.student_coverage)
    return (
        "Warning: the lengths of the gradients differ much between prompts, and few prompts make most of the error. Ordinary "
        f"{level_text(advice.level)} limits of the error would hold in about {held} of such tables. The limits here are wider "
        "for that reason, and assume that the lengths are roughly lognormal. No limits can allow for a kind of prompt that is "
        "missing from the table. More prompts help; more responses to each prompt do not.",
    )


def group_sizes(advice: Advice, scores: ScoresAdvice) -> Section:
    """Return a table of what each size loses, and of the groups without signal at each."""
    choice, loss = scores.choice, scores.choice.loss
    wanted = {*SHOWN, choice.group_size, choice.low, advice.group_size, *([choice.high] if choice.bounded else [])}
    shares = _shares(advice.rewards.uniform)
    limits = f"{level_text(advice.level)} limits"
    heading = "more error than the best" if scores.own is None else "the best gains more by"
    rows = [("group size", "prompts", heading, limits, "equal-reward groups", "")]
    for index, size in enumerate(choice.group_sizes.tolist()):
        if size in wanted:
            marks = {
                "recommended": size == choice.group_size,
                "yours": size == advice.group_size,
                "may be best": bool(choice.candidates[index]) and size != choice.group_size,
            }
            rows.append(
                (
                    f"{size:,}",
                    f"{choice.batch_sizes[index]:,}",
                    percent(loss.estimate[index], signed=True),
                    interval_text(loss.low[index], loss.high[index], signed=True),
                    shares.get(size, ""),
                    ", ".join(word for word, holds in marks.items() if holds),
                )
            )
    using = with_baseline(scores.recommended.pair) if scores.own is None else advice.estimator
    equal = _equal_rewards(scores.recommended.pair.name) if scores.own is None else EFFICIENCY_KNOWS
    text = [
        f"All rows are with {using}. A larger group estimates each prompt's gradient better but leaves room for fewer prompts. "
        f"{equal}"
    ]
    if any(row[4].endswith(PREDICTED) for row in rows[1:]):
        text.append(
            f"{PREDICTED} Estimated by a fitted model of success rates, because some prompts have fewer logged responses than "
            "this group size. The JSON and HTML output give limits that do not depend on the model."
        )
    return Section("Group sizes", tuple(text), tuple(rows))


def _shares(uniform: UniformShares) -> dict[int, str]:
    """Return the share of groups with equal rewards at each size, with a mark where it is not measured."""
    measured, estimates = uniform.measured.tolist(), uniform.interval.estimate.tolist()
    marked = [percent(share) + ("" if part == 1.0 else PREDICTED) for share, part in zip(estimates, measured, strict=True)]
    return dict(zip(uniform.group_sizes.tolist(), marked, strict=True))


def _equal_rewards(baseline: str) -> str:
    """Return what groups with equal rewards mean with a baseline."""
    if baseline == "leave-one-out mean":
        return (
            "Groups with equal rewards have no signal once their mean is subtracted. The error already accounts for these "
            "groups, so they are no further argument against small groups."
        )
    return "Groups with equal rewards have no signal once their own mean is subtracted. With this baseline they can have one."
