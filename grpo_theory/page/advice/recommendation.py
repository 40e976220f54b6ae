"""The recommendation in words: baseline, batch and learning rate; or why there is none, and what would change it."""

from collections.abc import Callable

from grpo_theory.page.advice.comparisons import best_of_sizes, with_baseline, without_lengths, yours
from grpo_theory.page.advice.group_sizes import binding
from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.cost import limits_prompts
from grpo_theory.plan.scores_advice import FEWEST, Missing, ScoresAdvice
from grpo_theory.plan.size_choice import FEWEST_PROMPTS
from grpo_theory.validation import counted

HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row a response",
    "rollouts = gt.RaggedRollouts(prompts, rewards, sketches)",
    "print(gt.page.to_text(gt.plan.advise(rollouts, budget)))",
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
        "error of the gradient of one training step."
    )
    if advice.estimator is None and not any(rival.better and rival.shown for rival in scores.recommended.rivals):
        lines[0] += " No other baseline, with its own best batch, is shown to have a smaller error."
    lines[0] += without_lengths(advice, scores) + _unsure(advice)
    return Section("Recommendation", (*lines, *_changes(advice, scores, _with_same_baseline)))


def _unsure(advice: Advice) -> str:
    return "" if advice.enough else " The data are not sufficient to be sure: see the section How sure."


def _changes(advice: Advice, scores: ScoresAdvice, compared: Callable[[Advice, ScoresAdvice], str]) -> list[str]:
    """Return how the group size in use compares, and what becomes of the learning rate."""
    lines = []
    if advice.group_size is not None:
        same = advice.group_size == scores.choice.group_size
        lines.append("This is the group size that you have." if same else compared(advice, scores))
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
            f"Going {change}, multiply the learning rate by {number(factor.most)}: then the expected step is the same, exactly."
        )
    return (
        f"Going {change}, multiply the learning rate by about {number(float(factor.factor.estimate))} to keep the expected "
        f"step, if the prompts' gradients point alike (between {number(factor.least)} and {number(factor.most)} along any "
        "direction in which no prompt's gradient points backwards; plain SGD, Adam rescales by itself)."
    )


def _batch(advice: Advice, prompts: int, size: int) -> str:
    limits = advice.limits
    unit = "responses" if limits.cost_prompt == 0.0 and limits.cost_response == 1.0 else "units of cost"
    spent = limits.cost(prompts, size)
    each = f"{counted(prompts, 'prompt')} with {size:,} responses" + (" each" if prompts > 1 else "")
    return f"{each} ({number(spent)} of the budget of {number(limits.budget)} {unit})"


def no_group_size(advice: Advice) -> Section:
    """Return why the best group size cannot be told, and what to do."""
    if advice.missing != Missing(scores=True):
        return Section("The best group size cannot be told", (f"Not from these rollouts: {size_missing(advice)}.",))
    return Section(
        "The best group size cannot be told from rewards alone",
        (
            f"For a whole run, {option('total')} N (its responses) recommends a size from rewards alone, by runs of small worlds "
            "that start at these success rates.",
            "The best size of one step depends on how much the prompts' gradients differ, and the table has no gradients. A "
            "random projection (sketch) of each response's gradient is enough; with grpo-theory[lm] installed:",
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
        return f"that takes {FEWEST_PROMPTS} prompts with {FEWEST} responses or more, and the table has {advice.missing.prompts}"
    return f"in no group of {FEWEST} responses or more do the rewards differ"


def would_change(advice: Advice) -> Section:
    """Return what would change the recommendation, the policy first."""
    lines = ["The policy: as it learns, success rates and gradients change, and with them this advice. Log rollouts again."]
    if advice.scores is not None:
        lines += [*_limits(advice, advice.scores), *_costs(advice, advice.scores)]
        choice = advice.scores.recommended.choice
        if advice.scores.own is None and not choice.bounded and choice.constants.alike and float(choice.constants.law.c3) > 0.0:
            lines.append(
                "Prompts: these may have gradients so alike that a larger group is always better. More prompts would tell."
            )
    return Section("What would change this", tuple(lines))


def _limits(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return what is said of the limits that bind."""
    choice, lines = scores.choice, []
    if scores.own is not None:
        lines.append(
            f"Larger groups: the table can tell of {advice.estimator} up to groups of {scores.by_efficiency.largest:,}. With "
            "more responses to each prompt it could tell of larger ones."
        )
    elif choice.best == choice.group_sizes.size - 1 and scores.real_optimum > choice.group_size:
        lines.append(
            f"The limits: larger groups than {choice.group_size:,} are not allowed ({binding(advice.limits)}). Were "
            f"they, the best group size would be {number(scores.real_optimum)} before rounding."
        )
    if limits_prompts(advice.limits, choice.group_size):
        full = f"{option('max_responses')} {advice.limits.max_responses:,}"
        lines.append(f"The budget: not by itself. {full} allows no more prompts with {choice.group_size:,} responses each.")
    return lines


def _costs(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return what is said of the budget and of costs."""
    limits, best = advice.limits, number(scores.real_optimum)
    if scores.own is not None:
        return [f"The budget, and a cost of a prompt: with {advice.estimator} the best group size can depend on both."]
    if limits.cost_prompt > 0.0:
        return [
            f"The costs: a prompt costs as much as {number(limits.cost_prompt / limits.cost_response)} responses here, and "
            f"the best group size, {best} before rounding, grows with that."
        ]
    cost = "A cost of reading a prompt, whatever its group's size (--cost-prompt): it makes larger groups better."
    if _limits(advice, scores) or scores.choice.group_sizes.size == 1:
        return [cost]
    which = "is the smallest at every budget" if scores.real_optimum <= 1.0 else f"is the same at every budget, here {best}"
    rounding = "" if scores.real_optimum <= 1.0 else " before rounding"
    return [
        f"The budget: hardly. Without a cost of a prompt the best group size {which}{rounding}; more budget should buy more "
        "prompts.",
        cost,
    ]
