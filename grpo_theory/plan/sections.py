"""The words of an advice, by section: the terminal and the page show the same ones."""

from dataclasses import dataclass

import numpy as np

from grpo_theory.plan.advice import FEWEST, Advice, ScoresAdvice
from grpo_theory.plan.rewards_advice import SHOWN

BASELINES = {
    "none": "none",
    "mean over prompts": "mean reward of all prompts",
    "leave-one-out mean": "mean of the group's others",
    "shrinkage": "mixture of these two means",
    "value": "each prompt's true mean reward",
    "optimal": "each prompt's best constant",
}
"""What each baseline is, in words."""
HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row a response",
    "rollouts = gt.RaggedRollouts(prompts, rewards, sketches)",
    "print(gt.plan.advise(rollouts, budget=...))",
)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and a table or lines of code, either of which may be empty.

    Attributes
    ----------
    title : str
    paragraphs : tuple of str
    table : tuple of rows
        The first row is the header; cells are strings.
    code : tuple of str
        Lines to be shown as they are.
    """

    title: str
    paragraphs: tuple[str, ...]
    table: tuple[tuple[str, ...], ...] = ()
    code: tuple[str, ...] = ()


def sections(advice: Advice) -> list[Section]:
    """Return what is to be said, the recommendation first."""
    scores = advice.scores
    if scores is None:
        parts = [_no_scores(advice)]
    else:
        parts = [_recommendation(advice, scores), _how_sure(advice, scores), _sizes(advice, scores), _baselines(advice, scores)]
    return [*parts, *_from_rewards(advice), _changes(advice), _assumptions(advice), _read(advice)]


def percent(share: float, signed: bool = False) -> str:
    """Return a share in percent, with as many digits as a reader needs."""
    if not np.isfinite(share):
        return "no limit"
    whole = abs(100.0 * share - round(100.0 * share)) < 0.05
    digits = 0 if abs(share) >= 0.0995 or whole else 1
    return f"{100.0 * share:{'+' if signed else ''},.{digits}f}%".replace("-0%", "0%").replace("+0%", "0%")


def number(value: float) -> str:
    """Return a number with three digits, and without needless ones."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _interval(low: float, high: float, signed: bool = False) -> str:
    if not np.isfinite(high):
        return f"{percent(low, signed)} or more"
    return f"{percent(low, signed)} to {percent(high, signed)}"


def _batch(advice: Advice, prompts: int, size: int) -> str:
    limits = advice.limits
    unit = "responses" if limits.cost_prompt == 0.0 and limits.cost_response == 1.0 else "units of cost"
    spent = limits.cost(prompts, size)
    return f"{prompts:,} prompts with {size:,} responses each ({number(spent)} of the budget of {number(limits.budget)} {unit})"


def _recommendation(advice: Advice, scores: ScoresAdvice) -> Section:
    choice = scores.choice
    lines = [
        f"Group size {choice.group_size}: {_batch(advice, choice.batch_size, choice.group_size)}. Of all batches that the "
        "budget and the limits allow, this one estimates the gradient of one training step with the least expected squared error."
    ]
    if advice.group_size is not None and advice.group_size != choice.group_size:
        place = choice.at(advice.group_size)
        tail = "" if not choice.candidates[place] else " The data cannot tell it from the best."
        lines.append(
            f"Yours, {advice.group_size}, has {percent(choice.loss[place])} more error ({_level(advice)} limits "
            f"{_interval(choice.loss_low[place], choice.loss_high[place])}).{tail}"
        )
    elif advice.group_size is not None:
        lines.append("That is the group size that you have.")
    factor = advice.rewards.learning_rate
    if factor is not None:
        lines.append(_learning_rate(advice, scores))
    return Section("Recommendation", tuple(lines))


def _learning_rate(advice: Advice, scores: ScoresAdvice) -> str:
    factor = advice.rewards.learning_rate
    assert factor is not None
    found = factor.factor
    change = f"from {advice.group_size} to {scores.choice.group_size} with {advice.estimator}"
    if factor.most - factor.least < 1e-9 * factor.most:
        return (
            f"Going {change}, multiply the learning rate by {number(factor.most)}: then the expected step is the same, exactly."
        )
    return (
        f"Going {change}, multiply the learning rate by about {number(float(found.estimate))} to keep the length of the "
        "expected step "
        f"(by {number(factor.least)} to {number(factor.most)} whatever the prompts' gradients; plain SGD, Adam rescales by "
        "itself)."
    )


def _level(advice: Advice) -> str:
    return f"{100.0 * advice.level:g}%"


def _how_sure(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, largest = scores.choice, int(scores.choice.group_sizes[-1])
    span = (
        f"from {choice.low:,} to {choice.high:,}"
        if choice.bounded
        else f"from {choice.low:,} up to {largest:,}, the largest allowed"
    )
    if choice.low == choice.high:
        return Section("How sure", (f"At {_level(advice)} confidence no other group size that is allowed is as good.",))
    lines = [f"{_level(advice)} confidence: the best group size is {span}. Within these the data tell no difference."]
    risk = choice.risk
    if np.isfinite(risk):
        lines.append(
            f"If {choice.group_size} is not the best, it has at most {percent(risk)} more error than the best: as if "
            f"{percent(risk / (1.0 + risk))} "
            "of the responses were thrown away."
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
            "Thousands of times as many prompts would be needed to tell: the choice hardly matters, or the table is too "
            "small to say."
        )
    else:
        lines.append(
            f"About {scores.prompts_needed:,} prompts like the {scores.prompts:,} here, with as many responses each, would "
            "bring it within the "
            "tolerance (limits narrow with the square root of the number of prompts)."
        )
    return Section("How sure", tuple(lines))


def _sizes(advice: Advice, scores: ScoresAdvice) -> Section:
    choice, uniform = scores.choice, advice.rewards.uniform
    shares = {int(size): i for i, size in enumerate(uniform.group_sizes)}
    wanted = {*SHOWN, choice.group_size, choice.low, advice.group_size, *([choice.high] if choice.bounded else [])}
    rows = [("group size", "prompts", "more error than the best", f"{_level(advice)} limits", "groups of one reward", "")]
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
        share = percent(float(uniform.interval.estimate[shares[size]])) if size in shares else ""
        rows.append(
            (
                f"{size:,}",
                f"{choice.batch_sizes[place]:,}",
                percent(choice.loss[place], signed=True),
                _interval(choice.loss_low[place], choice.loss_high[place], signed=True),
                share,
                ", ".join(marks),
            )
        )
    text = (
        "A larger group estimates each prompt's gradient better but leaves room for fewer prompts. Groups in which all "
        "rewards are equal "
        "give no gradient; the error counts them.",
    )
    return Section("Group sizes", text, tuple(rows))


def _baselines(advice: Advice, scores: ScoresAdvice) -> Section:
    table, signal = scores.baselines, scores.signal
    rows = [("baseline", "noise against the group's mean", f"{_level(advice)} limits")]
    relative = table.relative
    for i, name in enumerate(table.names):
        if name == "leave-one-out mean":
            rows.append((BASELINES[name], "0", "compared with this"))
        elif np.isfinite(relative.estimate[i]):
            limits = _interval(float(relative.low[i]), float(relative.high[i]), signed=True)
            rows.append((BASELINES[name], percent(float(relative.estimate[i]), signed=True), limits))
        else:
            rows.append((BASELINES[name], "cannot be told", ""))
    lines = [
        f"What is subtracted from the rewards, and the noise that it leaves in groups of {table.group_size} on these prompts. "
        "The last two "
        "need what nobody knows exactly, and show how much a better baseline could gain; the last is estimated with a lean "
        "towards the one above it.",
        f"The mixture is best with a share of {percent(table.shrinkage)} of the mean of all prompts. Counting a response in "
        "the mean that is "
        f"subtracted from it multiplies the gradient by {number(1.0 - 1.0 / table.group_size)} and changes nothing else.",
        _signal(advice, float(signal.estimate), float(signal.low), float(signal.high), table.group_size),
    ]
    return Section("Baseline, and how strong the signal is", tuple(lines), tuple(rows))


def _signal(advice: Advice, estimate: float, low: float, high: float, size: int) -> str:
    limits = f"{number(low)} or more" if not np.isfinite(high) else f"{number(low)} to {number(high)}"
    squared = "its squared length" if not low > 0.0 else "the squared length of the gradient"
    ratio = f"{limits} times" if not low > 0.0 else f"{number(estimate)} times ({_level(advice)} limits {limits})"
    opening = "The data do not tell the gradient from 0: " if not low > 0.0 else "Signal to noise: "
    told = f"{opening}{squared} is {ratio} the squared error of one step at group size {size}."
    return f"{told} Below 1 the noise of a step is longer than the gradient."


def _no_scores(advice: Advice) -> Section:
    return Section(
        "The best group size cannot be told from rewards alone",
        (
            "It depends on how much the prompts' gradients differ, and the table has no gradients. A random projection "
            "(sketch) of each "
            "response's gradient is enough; with grpo-theory[lm] installed:",
        ),
        code=HOW_TO_SKETCH,
    )


def _from_rewards(advice: Advice) -> list[Section]:
    rewards = advice.rewards
    sample, mean = rewards.sample, rewards.sample.mean_reward
    lines = [
        f"Mean reward {number(float(mean.estimate))} ({_level(advice)} limits {number(float(mean.low))} to "
        f"{number(float(mean.high))}). "
        f"{percent(sample.mixed_responses / sample.responses)} of the responses in the table are in groups with different "
        "rewards, and only "
        f"these give a gradient. For the mean reward the {sample.responses:,} responses are worth "
        f"{number(sample.effective_responses)} "
        "independent ones."
    ]
    if rewards.rates is not None:
        hard, easy = float(rewards.rates.cdf(0.2)), 1.0 - float(rewards.rates.cdf(0.8))
        lines.append(
            "The likeliest distribution of the prompts' success rates, the chance of small groups taken out, has mean "
            f"{percent(rewards.rates.mean)} and "
            f"standard deviation {percent(np.sqrt(rewards.rates.variance))}; {percent(hard)} of the prompts succeed at most "
            "20% of the time, "
            f"{percent(easy)} more than 80%."
        )
    if rewards.weights is not None:
        weights = rewards.weights
        at = [
            f"{percent(float(weights.shares.estimate[i]))} of the weight "
            f"({_interval(float(weights.shares.low[i]), float(weights.shares.high[i]))})"
            for i in range(3)
        ]
        lines.append(
            f"With {weights.estimator} at group size {weights.group_size} hard prompts (success below 20%) get {at[0]} in the "
            "expected step, "
            f"middling ones {at[1]}, easy ones (above 80%) {at[2]}; limits that hold whatever the distribution in brackets."
        )
    if rewards.missing:
        lines.append(f"Success rates and prompts' weights cannot be given: {rewards.missing}.")
    found = [Section("From the rewards alone", tuple(lines)), _evaluations(advice)]
    if advice.scores is None:
        rows = [("group size", "groups of one reward", f"{_level(advice)} limits", "")]
        shares = rewards.uniform
        for i, size in enumerate(shares.group_sizes):
            measured = (
                "measured" if shares.measured[i] == 1.0 else "predicted" if shares.measured[i] == 0.0 else "partly predicted"
            )
            limits = _interval(float(shares.interval.low[i]), float(shares.interval.high[i]))
            mine = ", yours" if size == advice.group_size else ""
            rows.append((f"{size}", percent(float(shares.interval.estimate[i])), limits, measured + mine))
        text = ("Groups in which all rewards are equal give no gradient.",)
        found.append(Section("Groups of one reward", text, tuple(rows)))
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
        f"Prompts on which two policies must be evaluated to find a difference of {number(cases[0].difference)} in mean "
        "reward with a chance of 80%: unrelated ones, or with expected rewards that have a correlation of 0.9 over prompts. "
        "How many training runs (seeds) tell two settings apart, one table cannot say: gt.plan.training_seeds_needed asks "
        "for two runs of each.",
    )
    return Section("Telling two policies apart", text, tuple(rows))


def _changes(advice: Advice) -> Section:
    limits, scores = advice.limits, advice.scores
    lines = ["The policy: as it learns, success rates and gradients change, and with them this advice. Log rollouts again."]
    if scores is not None:
        if limits.cost_prompt == 0.0:
            lines.append(
                "The budget: hardly. Without a cost of a prompt the best group size is the same at every budget, here "
                f"{number(scores.real_optimum)} before rounding; more budget should buy more prompts."
            )
            lines.append("A cost of reading a prompt, whatever its group's size (--cost-prompt): it makes larger groups better.")
        else:
            lines.append(
                f"The costs: a prompt costs as much as {number(limits.cost_prompt / limits.cost_response)} responses here, "
                "and the best group "
                f"size, {number(scores.real_optimum)} before rounding, grows with that."
            )
        if not scores.choice.bounded:
            lines.append(
                "Prompts: these may have gradients so alike that a larger group is always better. More prompts would tell."
            )
    return Section("What would change this", tuple(lines))


def _assumptions(advice: Advice) -> Section:
    lines = [
        "The prompts are independent draws from those trained on, and the number of responses to a prompt was fixed "
        "beforehand. A trainer "
        "that drops groups of one reward before it logs them breaks this.",
        "All responses come from one policy, at the temperature and with the settings of training.",
    ]
    if advice.scores is not None:
        lines.append(
            "The step uses rewards less the mean of the group's others (or a multiple of that, as the group's mean), without "
            "dividing by the "
            "standard deviation, and one update for each batch. The error of one step's gradient is what counts here, which "
            "is not all that counts."
        )
        lines.append(
            "Scores are gradients of the log-probability of whole responses, or random projections (sketches) of them, all "
            "by one and the same "
            "matrix. The error of a sketch is not in the limits: sketch with another seed to see it."
        )
    return Section("Assumed, and not checked", tuple(lines))


def _read(advice: Advice) -> Section:
    rewards, sample, scores = advice.rewards, advice.rewards.sample, advice.scores
    sizes = f"{rewards.smallest}" if rewards.smallest == rewards.largest else f"{rewards.smallest} to {rewards.largest}"
    lines = [f"{sample.prompts:,} prompts, {sample.responses:,} responses, {sizes} a prompt."]
    if scores is not None and scores.dropped:
        lines.append(
            f"{scores.dropped:,} prompts with fewer than {FEWEST} responses were left out of what needs gradients; "
            f"{scores.prompts:,} were used."
        )
    return Section("What was read", (*lines, *advice.notes))
