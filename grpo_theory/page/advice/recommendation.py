"""The recommendation in words: baseline, batch, learning rate, how sure they are, what each size loses, what would change it."""

from collections.abc import Callable

import numpy as np

from grpo_theory.page.advice.comparisons import best_of_sizes, with_baseline, without_lengths, yours
from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.batches import Limits, limits_groups, limits_prompts
from grpo_theory.plan.effective import UniformShares
from grpo_theory.plan.rewards_advice import SHOWN
from grpo_theory.plan.scores_advice import ScoresAdvice
from grpo_theory.validation import counted

PREDICTED = "*"
"""Marks a share that is estimated by a fitted model."""
TRAINERS = (
    "In TRL, use RLOOTrainer with num_generations={0}, or GRPOTrainer with the same, scale_rewards='none' and "
    "loss_type='dr_grpo'. In verl, set rollout.n={0}, adv_estimator=rloo and loss_agg_mode=seq-mean-token-sum-norm."
)
"""What makes a trainer's estimate the leave-one-out gradient, up to a factor."""
EFFICIENCY_KNOWS = (
    "The efficiency already accounts for groups with equal rewards, whatever the estimator makes of them, so they are no further "
    "argument against small groups."
)


def recommendation(advice: Advice, scores: ScoresAdvice) -> Section:
    """Return what to use, against what is in use, and what becomes of the learning rate."""
    choice, pair = scores.choice, scores.recommended.pair
    batch = _batch(advice, choice.batch_size, choice.group_size)
    if scores.own is not None:
        first = f"Use {advice.estimator} with groups of {choice.group_size:,}: {batch}.{best_of_sizes(advice, scores)}"
        lines = [first + without_lengths(advice, scores) + _unsure(advice)]
        return Section("Recommendation", (*lines, *_changes(advice, scores, yours)))
    lines = [f"Use {with_baseline(pair)} and groups of {pair.group_size:,}: {batch}."]
    lines[0] += (
        " Of all batches with this baseline that the budget and the limits allow, this one has the smallest estimated squared "
        "error of one step's gradient."
    )
    if advice.estimator is None:
        lines[0] += (
            " Another baseline would have a smaller error, but neither TRL nor verl offers it: see the section What it rests on."
            if scores.recommended.rivals
            else " No other baseline, with its own best batch, is shown to have a smaller error."
        )
    lines[0] += without_lengths(advice, scores) + _unsure(advice)
    if advice.estimator is None:
        lines.append(TRAINERS.format(pair.group_size))
    return Section("Recommendation", (*lines, *_changes(advice, scores, _with_same_baseline)))


def _unsure(advice: Advice) -> str:
    return "" if advice.enough else " The data are not sufficient to be sure: see the section How sure."


def _changes(advice: Advice, scores: ScoresAdvice, compared: Callable[[Advice, ScoresAdvice], str]) -> list[str]:
    """Return how the group size in use compares, and what becomes of the learning rate."""
    lines = []
    if advice.group_size is not None:
        same = advice.group_size == scores.choice.group_size
        lines.append("This is your current group size." if same else compared(advice, scores))
    if advice.rewards.learning_rate is not None:
        lines.append(_learning_rate(advice, scores))
    return lines


def _with_same_baseline(advice: Advice, scores: ScoresAdvice) -> str:
    assert advice.group_size is not None
    index, loss = scores.choice.at(advice.group_size), scores.choice.loss
    tail = "" if not scores.choice.candidates[index] else " The data cannot tell it from the best."
    return (
        f"With the same baseline, your group size {advice.group_size:,} has {percent(loss.estimate[index])} more error "
        f"({level_text(advice.level)} limits {interval_text(loss.low[index], loss.high[index])}).{tail}"
    )


def _learning_rate(advice: Advice, scores: ScoresAdvice) -> str:
    factor = advice.rewards.learning_rate
    assert factor is not None
    change = f"from groups of {advice.group_size:,} to groups of {scores.choice.group_size:,}"
    if advice.estimator is None:
        return f"Going {change}, keep the learning rate: with all four baselines the expected step is the same."
    change += f" with {advice.estimator}"
    if abs(factor.least - 1.0) < 1e-9 and abs(factor.most - 1.0) < 1e-9:
        return f"Going {change}, keep the learning rate: the expected step is the same."
    if factor.most - factor.least < 1e-9 * factor.most:
        return (
            f"Going {change}, multiply the learning rate by {number(factor.most)}: this keeps the expected step exactly the same."
        )
    return (
        f"Going {change}, multiply the learning rate by about {number(float(factor.factor.estimate))} to keep the expected "
        f"step. This assumes that the prompts' gradients point in similar directions. Along any direction in which no prompt's "
        f"gradient points backwards, the factor is between {number(factor.least)} and {number(factor.most)}. It is for plain "
        "SGD; Adam rescales its steps by itself."
    )


def _batch(advice: Advice, prompts: int, size: int) -> str:
    limits = advice.limits
    unit = "responses" if limits.cost_prompt == 0.0 and limits.cost_response == 1.0 else "units of cost"
    spent = limits.cost(prompts, size)
    each = f"{counted(prompts, 'prompt')} with {size:,} responses" + (" each" if prompts > 1 else "")
    return f"{each} ({number(spent)} of the budget of {number(limits.budget)} {unit})"


def would_change(advice: Advice) -> Section:
    """Return what would change the recommendation, the policy first."""
    lines = ["As the policy learns, success rates and gradients change, and so does this advice. Log rollouts and plan again."]
    if advice.scores is not None:
        lines += [*_limits(advice, advice.scores), *_costs(advice, advice.scores)]
        choice = advice.scores.recommended.choice
        if advice.scores.own is None and not choice.bounded and choice.constants.alike and float(choice.constants.law.c3) > 0.0:
            lines.append(
                "These prompts may have gradients so similar that a larger group is always better. More prompts would tell."
            )
    return Section("What would change this", tuple(lines))


def _limits(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return sentences on the limits that bind."""
    choice, lines = scores.choice, []
    if scores.own is not None:
        lines.append(
            f"The table shows the efficiency of {advice.estimator} up to groups of {scores.by_efficiency.largest:,}. More "
            "responses to each prompt would show it for larger groups."
        )
    elif choice.best == choice.group_sizes.size - 1 and scores.real_optimum > choice.group_size:
        lines.append(
            f"Groups larger than {choice.group_size:,} are not allowed ({binding(advice.limits)}). Without this "
            f"limit, the best group size would be {number(scores.real_optimum)} before rounding."
        )
    if limits_prompts(advice.limits, choice.group_size):
        full = f"{option('max_responses')} {advice.limits.max_responses:,}"
        each = f"{choice.group_size:,} responses each"
        lines.append(f"A larger budget alone changes nothing: {full} allows no more prompts with {each}.")
    return lines


def _costs(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return sentences on the budget and on costs."""
    limits, best = advice.limits, number(scores.real_optimum)
    if scores.own is not None:
        return [f"With {advice.estimator}, the best group size can depend on the budget and on a cost per prompt."]
    if limits.cost_prompt > 0.0:
        return [
            f"A prompt costs as much as {number(limits.cost_prompt / limits.cost_response)} responses here. The best group "
            f"size, {best} before rounding, grows with this cost."
        ]
    cost = "A fixed cost of reading each prompt (--cost-prompt) makes larger groups better."
    if _limits(advice, scores) or scores.choice.group_sizes.size == 1:
        return [cost]
    which = "is the smallest at every budget" if scores.real_optimum <= 1.0 else f"is the same at every budget, here {best}"
    rounding = "" if scores.real_optimum <= 1.0 else " before rounding"
    return [
        f"The budget hardly matters. Without a cost per prompt, the best group size {which}{rounding}. Spend a larger budget on "
        "more prompts.",
        cost,
    ]


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
            "sufficient. Limits narrow with the square root of the number of prompts."
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
