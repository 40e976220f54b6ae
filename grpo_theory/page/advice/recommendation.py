"""The recommendation in words: baseline, batch and learning rate; or why there is none, and what would change it."""

from collections.abc import Callable

from grpo_theory.page.advice.comparisons import best_of_sizes, with_baseline, without_lengths, yours
from grpo_theory.page.advice.group_sizes import binding
from grpo_theory.page.section import Section, interval_text, level_text, number, option, percent
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.cost import limits_prompts
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.plan.scores_advice import FEWEST, Missing, ScoresAdvice
from grpo_theory.plan.size_choice import FEWEST_PROMPTS
from grpo_theory.validation import counted

HOW_TO_SKETCH = (
    "sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # one row per response",
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


def no_group_size(advice: Advice, run: RunAdvice | None) -> Section:
    """Return why the best group size of a step cannot be told, and what to do; a run that was asked for is not recommended."""
    if advice.missing != Missing(scores=True):
        return Section("The best group size cannot be told", (f"These rollouts are not sufficient: {size_missing(advice)}.",))
    whole = (
        f"To get a group size for a whole run from rewards alone, give its number of responses: {option('total')} N. The "
        "planner then simulates small worlds that start at these success rates.",
    )
    return Section(
        "The best group size cannot be told from rewards alone",
        (
            *(whole if run is None else ()),
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
        return f"{FEWEST_PROMPTS} prompts with {FEWEST} responses or more are needed, and the table has {advice.missing.prompts}"
    return f"in no group of {FEWEST} responses or more do the rewards differ"


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
    """Return what is said of the limits that bind."""
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
    """Return what is said of the budget and of costs."""
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
