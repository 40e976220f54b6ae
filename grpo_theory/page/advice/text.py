"""An advice in words: its sections in their order, which the web page shows too, and plain text for a terminal."""

from textwrap import fill

from grpo_theory.page.advice.baselines import baselines, rests_on
from grpo_theory.page.advice.estimators import other_estimators
from grpo_theory.page.advice.group_sizes import group_sizes, how_sure
from grpo_theory.page.advice.recommendation import no_group_size, recommendation, would_change
from grpo_theory.page.advice.rewards import equal_rewards, evaluations, rewards_alone
from grpo_theory.page.section import Section
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.scores_advice import FEWEST
from grpo_theory.validation import counted

WIDTH = 100


def to_text(advice: Advice) -> str:
    """Return all sections one under another, lines of at most 100 characters but for tables and code."""
    return "\n\n".join(_section(part) for part in sections(advice)) + "\n"


def _section(part: Section) -> str:
    lines = [part.title.upper()]
    lines += [fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") for text in part.paragraphs]
    lines += [f"    {line}" for line in part.code]
    if part.table:
        widths = [max(len(row[i]) for row in part.table) for i in range(len(part.table[0]))]
        lines += [""]
        lines += ["  " + "  ".join(_cell(i, row[i], widths[i]) for i in range(len(row))).rstrip() for row in part.table]
    return "\n".join(lines)


def _cell(column: int, text: str, width: int) -> str:
    """Return a cell of a table: the first column to the left, and words to the left everywhere."""
    numeric = text[:1].isdigit() or text[:1] in "+-"
    return text.rjust(width) if numeric and column > 0 else text.ljust(width)


def sections(advice: Advice) -> list[Section]:
    """Return what is to be said, the recommendation first."""
    scores = advice.scores
    alone = [rewards_alone(advice), evaluations(advice)]
    rest = [would_change(advice), assumptions(advice), what_was_read(advice)]
    if scores is not None:
        shown = (recommendation, rests_on, how_sure, group_sizes, *(() if scores.own else (baselines,)), other_estimators)
        found = (section(advice, scores) for section in shown)
        return [*(part for part in found if part is not None), *alone, *rest]
    return [no_group_size(advice), *alone, equal_rewards(advice), *rest]


def assumptions(advice: Advice) -> Section:
    """Return what the advice takes to be so."""
    lines = [
        "The prompts are independent draws from those trained on, and the number of responses to a prompt was fixed "
        "beforehand. A trainer that drops groups with equal rewards before it logs them breaks this.",
        "All responses come from one policy, at the temperature and with the settings of training.",
    ]
    if advice.scores is not None:
        lines.append(
            _step(advice)
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
    return (
        advice.estimator is None or advice.baseline is not None or (advice.scores is not None and advice.scores.own is not None)
    )


def _step(advice: Advice) -> str:
    """Return what is taken to be so of the step."""
    if advice.scores is not None and advice.scores.own is not None:
        return (
            f"The step uses the advantages of {advice.estimator} with its registered constants, its learning rate is tuned, and "
            "each batch is used for one update, so that importance ratios are 1. "
        )
    return (
        "The step uses the recommended baseline, does not divide by the standard deviation, and makes one update for each batch. "
    )


def what_was_read(advice: Advice) -> Section:
    """Return the size of the table, what of it was left out, and what its reader remarked on."""
    sample, scores, (smallest, largest) = advice.rewards.sample, advice.scores, advice.rewards.group_sizes
    sizes = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    lines = [f"{sample.prompts:,} prompts, {sample.responses:,} responses, {sizes} a prompt."]
    if scores is not None and scores.dropped:
        lines.append(
            f"Of what needs gradients {counted(scores.dropped, 'prompt')} with fewer than {FEWEST} responses "
            f"{'was' if scores.dropped == 1 else 'were'} left out; {scores.prompts:,} were used."
        )
    return Section("What was read", (*lines, *advice.notes))
