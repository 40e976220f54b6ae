"""What rewards and scores together tell, in words: baseline, group size, and how sure they are."""

import numpy as np

from grpo_theory.plan.advice import NO_SCORES, Advice, ScoresAdvice
from grpo_theory.plan.binding import keeps_out_groups
from grpo_theory.plan.rewards_advice import SHOWN
from grpo_theory.plan.section import Section, interval_text, level_text, number, percent
from grpo_theory.plan.support import BASELINES, rests_on, with_baseline
from grpo_theory.validation import counted

HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row a response",
    "rollouts = gt.RaggedRollouts(prompts, rewards, sketches)",
    "print(gt.plan.advise(rollouts, budget=...))",
)


def from_gradients(advice: Advice) -> list[Section]:
    """Return the recommendation, what it rests on, how sure it is, all sizes and baselines; or why there is none."""
    scores = advice.scores
    if scores is None:
        return [_no_group_size(advice)]
    return [
        _recommendation(advice, scores),
        rests_on(advice, scores),
        _how_sure(advice, scores),
        _sizes(advice, scores),
        _baselines(advice, scores),
    ]


def _recommendation(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, pair = scores.choice, scores.recommended.pair
    lines = [f"Use {with_baseline(pair)} and groups of {pair.group_size:,}: {_batch(advice, pair.batch_size, pair.group_size)}."]
    lines[0] += (
        " Of all batches with this baseline that the budget and the limits allow, this one has the smallest estimated squared "
        "error of the gradient of one training step."
    )
    if advice.estimator is None and not any(rival.better and rival.shown for rival in scores.recommended.rivals):
        lines[0] += " No other baseline, with its own best batch, is shown to have a smaller error."
    if not advice.enough:
        lines[0] += " The data are not sufficient to be sure: see the section How sure."
    if advice.group_size is not None and advice.group_size != choice.group_size:
        place = choice.at(advice.group_size)
        tail = "" if not choice.candidates[place] else " The data cannot tell it from the best."
        lines.append(
            f"With the same baseline, your group size {advice.group_size:,} has {percent(choice.loss[place])} more error "
            f"({level_text(advice)} limits {interval_text(choice.loss_low[place], choice.loss_high[place])}).{tail}"
        )
    elif advice.group_size is not None:
        lines.append("This is the group size that you have.")
    if advice.rewards.learning_rate is not None:
        lines.append(_learning_rate(advice, scores))
    return Section("Recommendation", tuple(lines))


def _learning_rate(advice: Advice, scores: ScoresAdvice) -> str:
    factor = advice.rewards.learning_rate
    assert factor is not None
    found = factor.factor
    change = f"from groups of {advice.group_size:,} to groups of {scores.choice.group_size:,}"
    if advice.estimator is None:
        return f"Going {change}, keep the learning rate: with all four baselines the expected step is the same."
    change += f" with {advice.estimator}"
    if abs(factor.least - 1.0) < 1e-9 and abs(factor.most - 1.0) < 1e-9:
        return f"Going {change}, keep the learning rate: the expected step is the same."
    if factor.most - factor.least < 1e-9 * factor.most:
        return (
            f"Going {change}, multiply the learning rate by {number(factor.most)}: then the expected step is the same, exactly."
        )
    return (
        f"Going {change}, multiply the learning rate by about {number(float(found.estimate))} to keep the expected step, if the "
        f"prompts' gradients point alike (between {number(factor.least)} and {number(factor.most)} along any direction in which "
        "no prompt's gradient points backwards; plain SGD, Adam rescales by itself)."
    )


def _batch(advice: Advice, prompts: int, size: int) -> str:
    limits = advice.limits
    unit = "responses" if limits.cost_prompt == 0.0 and limits.cost_response == 1.0 else "units of cost"
    spent = limits.cost(prompts, size)
    each = f"{counted(prompts, 'prompt')} with {size:,} responses" + (" each" if prompts > 1 else "")
    return f"{each} ({number(spent)} of the budget of {number(limits.budget)} {unit})"


def _how_sure(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, largest = scores.choice, int(scores.choice.group_sizes[-1])
    if choice.group_sizes.size == 1:
        only = f"Only this group size is allowed ({keeps_out_groups(advice.limits)}): there is no choice."
        return Section("How sure", (only, *_tails(advice, scores)))
    if choice.low == choice.high:
        sure = f"At {level_text(advice)} confidence, every other permitted group size has a larger error with this baseline."
        return Section("How sure", (sure, *_tails(advice, scores)))
    span = (
        f"between {choice.low:,} and {choice.high:,}"
        if choice.bounded
        else f"between {choice.low:,} and {largest:,}, the largest allowed"
    )
    holes = " Sizes in between that waste budget by rounding are left out." if len(choice.runs) > 1 else ""
    lines = [
        f"At {level_text(advice)} confidence, the best group size with this baseline is {span}.{holes} The data cannot tell "
        "these sizes apart."
    ]
    risk = choice.risk
    if np.isfinite(risk):
        lines.append(
            f"If {choice.group_size:,} is not the best size, it has at most {percent(risk)} more error than the best. That is as "
            f"if {percent(risk / (1.0 + risk))} of the responses were thrown away."
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


def _tails(advice: Advice, scores: ScoresAdvice) -> tuple[str, ...]:
    """Return the warning of a table in which few prompts make most of the error; nothing of other tables."""
    if not advice.heavy_tailed:
        return ()
    return (
        "Warning: the lengths of the gradients differ much between prompts, so that few prompts make most of the error. Ordinary "
        f"{level_text(advice)} limits of the error would hold in about {percent(scores.leave_one_out.student_coverage)} of such "
        "tables. The limits here are wider for that reason, and take the lengths to be roughly lognormal. No limits can allow "
        "for a kind of prompt that is missing from the table: more prompts help, more responses to each do not.",
    )


def _sizes(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, uniform = scores.choice, advice.rewards.uniform
    shares = {int(size): i for i, size in enumerate(uniform.group_sizes)}
    wanted = {*SHOWN, choice.group_size, choice.low, advice.group_size, *([choice.high] if choice.bounded else [])}
    limits = f"{level_text(advice)} limits"
    rows = [("group size", "prompts", "more error than the best", limits, "equal-reward groups", "")]
    predicted = False
    for place, size in enumerate(choice.group_sizes.tolist()):
        if size not in wanted:
            continue
        marks = [
            word
            for word, here in (
                ("recommended", size == choice.group_size),
                ("yours", size == advice.group_size),
                ("may be best", bool(choice.candidates[place]) and size != choice.group_size),
            )
            if here
        ]
        share = ""
        if size in shares:
            at = shares[size]
            mark = "" if uniform.measured[at] == 1.0 else "*"
            predicted = predicted or mark == "*"
            share = percent(float(uniform.interval.estimate[at])) + mark
        rows.append(
            (
                f"{size:,}",
                f"{choice.batch_sizes[place]:,}",
                percent(choice.loss[place], signed=True),
                interval_text(choice.loss_low[place], choice.loss_high[place], signed=True),
                share,
                ", ".join(marks),
            )
        )
    text: tuple[str, ...] = (
        f"All rows are with {with_baseline(scores.recommended.pair)}. A larger group estimates each prompt's gradient better but "
        f"leaves room for fewer prompts. {_equal_rewards(scores.recommended.pair.name)}",
    )
    if predicted:
        text += (
            "* Estimated by a fitted model of success rates, because some prompts have fewer logged responses than this group "
            "size. The JSON and HTML output give limits that do not depend on the model.",
        )
    return Section("Group sizes", text, tuple(rows))


def _equal_rewards(baseline: str) -> str:
    """Return what groups with equal rewards mean with a baseline."""
    if baseline == "leave-one-out mean":
        return (
            "Groups with equal rewards have no signal once their mean is subtracted. The error already accounts for these "
            "groups, so they are no further argument against small groups."
        )
    return "Groups with equal rewards have no signal once their own mean is subtracted; with this baseline they can have one."


def _baselines(advice: Advice, scores: ScoresAdvice) -> Section:
    table, signal = scores.baselines, scores.signal
    rows = [("baseline", "noise against leave-one-out", f"{level_text(advice)} limits")]
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
            f"{number(estimate)} times the squared error of one step ({level_text(advice)} limits {limits})."
        )
    else:
        told = (
            "The data do not tell the gradient from 0: with the recommendation, its squared length is "
            f"{limits} times the squared error of one step."
        )
    return f"{told} Below 1, the noise of a step is longer than the gradient."


def _no_group_size(advice: Advice) -> Section:
    if advice.missing != NO_SCORES:
        return Section("The best group size cannot be told", (f"Not from these rollouts: {advice.missing}.",))
    return Section(
        "The best group size cannot be told from rewards alone",
        (
            "It depends on how much the prompts' gradients differ, and the table has no gradients. A random projection "
            "(sketch) of each response's gradient is enough; with grpo-theory[lm] installed:",
        ),
        code=HOW_TO_SKETCH,
    )
