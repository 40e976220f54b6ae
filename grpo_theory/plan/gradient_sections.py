"""What rewards and scores together tell, in words: group size, baseline, strength of the signal."""

import numpy as np

from grpo_theory.plan.advice import NO_SCORES, Advice, ScoresAdvice
from grpo_theory.plan.baseline_gain import BaselineGain
from grpo_theory.plan.binding import keeps_out_groups
from grpo_theory.plan.rewards_advice import SHOWN
from grpo_theory.plan.section import Section, interval_text, level_text, number, percent
from grpo_theory.validation import counted

BASELINES = {
    "none": "none",
    "mean over prompts": "mean reward of all prompts",
    "leave-one-out mean": "mean of the group's others",
    "shrinkage": "mixture of these two means",
    "value": "each prompt's true mean reward",
    "optimal": "each prompt's best constant",
}
"""What each baseline is, in words."""
SUBTRACTED = {
    "none": "with none",
    "mean over prompts": "with the mean reward of all prompts",
    "shrinkage": "with the best mixture of that and the mean reward of all prompts",
}
"""What else is subtracted from the rewards."""
HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row a response",
    "rollouts = gt.RaggedRollouts(prompts, rewards, sketches)",
    "print(gt.plan.advise(rollouts, budget=...))",
)


def from_gradients(advice: Advice) -> list[Section]:
    """Return the recommendation, how sure it is, all sizes and baselines; or why there is none."""
    scores = advice.scores
    if scores is None:
        return [_no_group_size(advice)]
    return [_recommendation(advice, scores), _how_sure(advice, scores), _sizes(advice, scores), _baselines(advice, scores)]


def _recommendation(advice: Advice, scores: ScoresAdvice) -> Section:
    choice = scores.choice
    lines = [
        f"Group size {choice.group_size}: {_batch(advice, choice.batch_size, choice.group_size)}. Of all batches that the "
        "budget and the limits allow, this one estimates the gradient of one training step with the least expected squared "
        "error."
    ]
    if not advice.enough:
        lines[0] += " It is the likeliest and no more: the data cannot tell yet, as the next section says."
    if not advice.leave_one_out:
        lines.append(
            f"These errors are those of rewards less the mean of the group's others. You named {advice.estimator}, whose error "
            "this is not, and whose best group size can be another."
        )
    if advice.group_size is not None and advice.group_size != choice.group_size:
        place = choice.at(advice.group_size)
        whose = "Yours" if advice.leave_one_out else "With rewards less the mean of the others, your size"
        tail = "" if not choice.candidates[place] else " The data cannot tell it from the best."
        lines.append(
            f"{whose}, {advice.group_size}, has {percent(choice.loss[place])} more error ({level_text(advice)} limits "
            f"{interval_text(choice.loss_low[place], choice.loss_high[place])}).{tail}"
        )
    elif advice.group_size is not None:
        lines.append("That is the group size that you have.")
    if scores.better is not None:
        lines.append(_better(advice, scores.better))
    factor = advice.rewards.learning_rate
    if factor is not None:
        lines.append(_learning_rate(advice, scores))
    return Section("Recommendation", tuple(lines))


def _better(advice: Advice, better: BaselineGain) -> str:
    gain = better.gain
    return (
        f"With the mean of the group's others as baseline this is best; {SUBTRACTED[better.name]} and groups of "
        f"{better.group_size:,} ({counted(better.batch_size, 'prompt')}) the error would be {percent(float(gain.estimate))} less "
        f"({level_text(advice)} limits {interval_text(float(gain.low), float(gain.high))})."
    )


def _learning_rate(advice: Advice, scores: ScoresAdvice) -> str:
    factor = advice.rewards.learning_rate
    assert factor is not None
    found = factor.factor
    change = f"from {advice.group_size} to {scores.choice.group_size} with {advice.estimator}"
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
        return Section("How sure", (f"Only this group size is allowed ({keeps_out_groups(advice.limits)}): there is no choice.",))
    span = (
        f"between {choice.low:,} and {choice.high:,}"
        if choice.bounded
        else f"between {choice.low:,} and {largest:,}, the largest allowed"
    )
    holes = " Sizes between that waste budget by rounding are left out." if len(choice.runs) > 1 else ""
    if choice.low == choice.high:
        return Section("How sure", (f"At {level_text(advice)} confidence no other group size that is allowed is as good.",))
    lines = [f"{level_text(advice)} confidence: the best group size is {span}.{holes} Within these the data tell no difference."]
    risk = choice.risk
    if np.isfinite(risk):
        lines.append(
            f"If {choice.group_size} is not the best, it has at most {percent(risk)} more error than the best: as if "
            f"{percent(risk / (1.0 + risk))} of the responses were thrown away."
        )
    else:
        lines.append("How much worse than the best the recommended size might be, the data do not limit.")
    if advice.enough:
        lines.append(
            f"That is within the tolerance of {percent(advice.tolerance)}: more rollouts would not change the advice by much."
        )
        return Section("How sure", tuple(lines))
    lines.append(f"The data cannot tell: that is more than the tolerance of {percent(advice.tolerance)}.")
    if scores.prompts_needed is None:
        lines.append(
            "How many more prompts would tell, this table does not say: it is too small for that, or thousands of times as many "
            "would be needed."
        )
    else:
        lines.append(
            f"About {scores.prompts_needed:,} prompts like the {scores.prompts:,} here, with as many responses each, would "
            "bring it within the tolerance (limits narrow with the square root of the number of prompts)."
        )
    return Section("How sure", tuple(lines))


def _sizes(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, uniform = scores.choice, advice.rewards.uniform
    shares = {int(size): i for i, size in enumerate(uniform.group_sizes)}
    wanted = {*SHOWN, choice.group_size, choice.low, advice.group_size, *([choice.high] if choice.bounded else [])}
    rows = [("group size", "prompts", "more error than the best", f"{level_text(advice)} limits", "groups of one reward", "")]
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
        "A larger group estimates each prompt's gradient better but leaves room for fewer prompts. Groups in which all rewards "
        "are equal give no gradient once their mean is subtracted; the error counts them.",
    )
    if predicted:
        text += (
            "* Predicted from the likeliest distribution of success rates: not all prompts have so many responses. Limits that "
            "hold whatever that is are in the JSON and on the page.",
        )
    return Section("Group sizes", text, tuple(rows))


def _baselines(advice: Advice, scores: ScoresAdvice) -> Section:
    table, signal = scores.baselines, scores.signal
    rows = [("baseline", "noise against the group's mean", f"{level_text(advice)} limits")]
    relative = table.relative
    for i, name in enumerate(table.names):
        if name == "leave-one-out mean":
            rows.append((BASELINES[name], "0", "compared with this"))
        elif np.isfinite(relative.estimate[i]):
            limits = interval_text(float(relative.low[i]), float(relative.high[i]), signed=True)
            rows.append((BASELINES[name], percent(float(relative.estimate[i]), signed=True), limits))
        else:
            rows.append((BASELINES[name], "cannot be told", ""))
    lines = [
        f"What is subtracted from the rewards, and the noise that it leaves in groups of {table.group_size} on these prompts. "
        "The last two need what nobody knows exactly, and show how much a better baseline could gain; the last is estimated "
        "with a lean towards the one above it.",
        f"The mixture is best with a share of {percent(table.shrinkage)} of the mean of all prompts. Counting a response in the "
        f"mean that is subtracted from it multiplies the gradient by {number(1.0 - 1.0 / table.group_size)} and changes nothing "
        "else.",
        _signal(advice, float(signal.estimate), float(signal.low), float(signal.high), table.group_size)
        + f" The limits take in that a sketch of {scores.width:,} numbers errs by {percent(np.sqrt(2.0 / scores.width))} in a "
        "squared length.",
    ]
    return Section("Baseline, and how strong the signal is", tuple(lines), tuple(rows))


def _signal(advice: Advice, estimate: float, low: float, high: float, size: int) -> str:
    limits = f"{number(low)} or more" if not np.isfinite(high) else f"{number(low)} to {number(high)}"
    squared = "its squared length" if not low > 0.0 else "the squared length of the gradient"
    ratio = f"{limits} times" if not low > 0.0 else f"{number(estimate)} times ({level_text(advice)} limits {limits})"
    opening = "The data do not tell the gradient from 0: " if not low > 0.0 else "Signal to noise: "
    told = f"{opening}{squared} is {ratio} the squared error of one step at group size {size}."
    return f"{told} Below 1 the noise of a step is longer than the gradient."


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
