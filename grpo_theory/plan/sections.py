"""The words of an advice, by section: the terminal and the page show the same ones."""

from grpo_theory.plan.advice import FEWEST, Advice, ScoresAdvice
from grpo_theory.plan.binding import keeps_out_groups, keeps_out_prompts
from grpo_theory.plan.gradient_sections import from_gradients
from grpo_theory.plan.reward_sections import from_rewards
from grpo_theory.plan.section import Section, number
from grpo_theory.validation import counted


def sections(advice: Advice) -> list[Section]:
    """Return what is to be said, the recommendation first."""
    return [*from_gradients(advice), *from_rewards(advice), _changes(advice), _assumptions(advice), _read(advice)]


def _changes(advice: Advice) -> Section:
    lines = ["The policy: as it learns, success rates and gradients change, and with them this advice. Log rollouts again."]
    if advice.scores is not None:
        lines += [*_limits(advice, advice.scores), *_costs(advice, advice.scores)]
        choice = advice.scores.choice
        if not choice.bounded and choice.alike and float(choice.law.c3) > 0.0:
            lines.append(
                "Prompts: these may have gradients so alike that a larger group is always better. More prompts would tell."
            )
    return Section("What would change this", tuple(lines))


def _limits(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return what is said of the limits that bind."""
    choice, lines = scores.choice, []
    if choice.best == choice.group_sizes.size - 1 and scores.real_optimum > choice.group_size:
        lines.append(
            f"The limits: larger groups than {choice.group_size:,} are not allowed ({keeps_out_groups(advice.limits)}). Were "
            f"they, the best group size would be {number(scores.real_optimum)} before rounding."
        )
    full = keeps_out_prompts(advice.limits, choice.group_size)
    if full:
        lines.append(f"The budget: not by itself. {full} allows no more prompts with {choice.group_size:,} responses each.")
    return lines


def _costs(advice: Advice, scores: ScoresAdvice) -> list[str]:
    """Return what is said of the budget and of costs."""
    limits, best = advice.limits, number(scores.real_optimum)
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


def _assumptions(advice: Advice) -> Section:
    lines = [
        "The prompts are independent draws from those trained on, and the number of responses to a prompt was fixed "
        "beforehand. A trainer that drops groups with equal rewards before it logs them breaks this.",
        "All responses come from one policy, at the temperature and with the settings of training.",
    ]
    if advice.scores is not None:
        lines.append(
            "The step uses the recommended baseline, does not divide by the standard deviation, and makes one update for each "
            "batch. "
            + ("" if _keeps(advice) else f"This is known not to hold for {advice.estimator}, which you named. ")
            + "The error of one step's gradient is what counts here, which is not all that counts."
        )
        lines.append(
            "Scores are gradients of the log-probability of whole responses, or random projections (sketches) of them, all by "
            "one and the same matrix. Only the limits of the signal to noise include the error of a sketch: sketch with another "
            "seed to see it."
        )
    return Section("Assumed, and not checked", tuple(lines))


def _keeps(advice: Advice) -> bool:
    """Return whether the recommendation is for the user's own estimator, or for none in particular."""
    return advice.estimator is None or advice.baseline is not None


def _read(advice: Advice) -> Section:
    rewards, sample, scores = advice.rewards, advice.rewards.sample, advice.scores
    sizes = f"{rewards.smallest}" if rewards.smallest == rewards.largest else f"{rewards.smallest} to {rewards.largest}"
    lines = [f"{sample.prompts:,} prompts, {sample.responses:,} responses, {sizes} a prompt."]
    if scores is not None and scores.dropped:
        lines.append(
            f"Of what needs gradients {counted(scores.dropped, 'prompt')} with fewer than {FEWEST} responses "
            f"{'was' if scores.dropped == 1 else 'were'} left out; {scores.prompts:,} were used."
        )
    return Section("What was read", (*lines, *advice.notes))
