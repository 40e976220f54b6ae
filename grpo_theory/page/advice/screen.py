"""An advice as one screen that says what to do first, as JSON, and as one page of HTML.

What draws is imported for the page alone.
"""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import fill
from typing import Any

import numpy as np

from grpo_theory.intervals import Interval
from grpo_theory.plan.advice import FEWEST, KEPT, LOST, NO_SCORES, RULE, SHOWN, Advice, RunAdvice
from grpo_theory.plan.efficiency import weighs_by_length
from grpo_theory.plan.expected_step import LearningRateFactor
from grpo_theory.plan.group_size import limits_groups
from grpo_theory.user_text import json_value, printable
from grpo_theory.validation import counted

MOST_LINES, MOST_ROWS, WIDTH = 25, 5, 100
"""Of the screen, of its table, and of its lines but for the table's."""
RATES_FROM = 8
"""Fewer responses per prompt leave open how often prompts succeed."""
BASELINES = {
    "none": "no baseline",
    "mean over prompts": "the mean reward of all prompts as baseline",
    "leave-one-out mean": "the leave-one-out baseline",
    "shrinkage": "a mixture of the leave-one-out mean and the mean of all prompts as baseline",
}
"""What each baseline is, in words that go after "with"."""
TRAINERS = (
    "In TRL, use RLOOTrainer with num_generations={0}, or GRPOTrainer with the same, scale_rewards='none' and "
    "loss_type='dr_grpo'. In verl, set rollout.n={0}, adv_estimator=rloo and loss_agg_mode=seq-mean-token-sum-norm."
)
"""What makes a trainer's estimate the leave-one-out gradient, up to a factor."""
ASSUMED = (
    "Prompts are independent draws from those trained on, and the number of responses to each was fixed beforehand. A trainer "
    "that drops groups with equal rewards before it logs them breaks this.",
    "All responses come from one policy, at the temperature and with the settings of training. Each batch makes one update.",
    "For a step, only the error of its gradient counts; scores are gradients of whole responses or sketches by one matrix.",
    "For a run, small softmax policies trained by plain ascent stand for yours.",
)


@dataclass(frozen=True)
class Answer:
    """The one recommendation.

    Attributes
    ----------
    question : str
        "run" or "step": what it is for.
    group_size : int or None
        None where it cannot be told.
    batch_size : int or None
        The prompts of a step; None for a run.
    best : int or None
        The size with the best estimate, which is another where the user's is as good.
    keep : bool
        Whether the user's size is within the noise of the best, or within the tolerance, and so is recommended.
    learning_rate : LearningRateFactor, float or None
        By what to multiply the learning rate; None where nothing changes or it is not known.
    """

    question: str
    group_size: int | None
    batch_size: int | None
    best: int | None
    keep: bool
    learning_rate: LearningRateFactor | float | None


def answer(advice: Advice, run: RunAdvice | None = None) -> Answer:
    """Return the recommendation: for the run if it was asked for, else for a step.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, pilot = gt.gallery.problem("linear"), gt.Pilot(batch_size=64, group_size=8)
    >>> rollouts = pilot.take(pilot.sample(problem, 0, 1), 0)
    >>> found = gt.page.answer(gt.plan.advise(rollouts, 1024, group_size=2))
    >>> found.question, found.group_size, found.keep
    ('step', 5, False)
    """
    if run is not None:
        return Answer("run", run.group_size, None, run.group_size, run.keep, run.learning_rate)
    if advice.scores is None:
        return Answer("step", None, None, None, False, None)
    choice, size = advice.scores.choice, advice.scores.choice.group_size
    keep = advice.group_size in choice.group_sizes[choice.candidates | (choice.loss.estimate <= advice.tolerance)]
    if keep and advice.group_size is not None:
        size = advice.group_size
    factor = None if keep else advice.rewards.learning_rate
    return Answer("step", size, advice.limits.prompts(size), choice.group_size, keep, factor)


def to_text(advice: Advice, run: RunAdvice | None = None, *, everything: bool = False) -> str:
    """Format an advice as text: one screen of at most 25 lines, with lines of at most 100 characters but for its table.

    `run` is what `gt.plan.advise_run` returns, if it was asked. With `everything`, the screen is not cut, and what it rests on
    follows.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_text(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> print(text.partition(":")[0])
    No group size for one step can be told
    """
    found, sample, (smallest, largest) = answer(advice, run), advice.rewards.sample, advice.rewards.group_sizes
    sizes = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    table = f"{counted(sample.prompts, 'prompt')}, {counted(sample.responses, 'response')}, {sizes} per prompt"
    told = [
        (headline(advice, run, found), 3),
        (the_other(advice, run), 2),
        (how_sure(advice, run), 3),
        (f"Read: {'; '.join([table, *advice.reading[:2]])}", 2),
        (would_change(advice) if run is None else "", 2),
        (signal(advice), 2),
    ]
    paragraphs = [_wrapped(text, None if everything else most) for text, most in told]
    rows = table_lines(size_table(advice, found, None if everything else MOST_ROWS))
    lines = [*chain(*paragraphs[:3]), "", *rows, "", *chain(*paragraphs[3:])]
    notes = [f"Note: {note}" for note in (*warnings(advice), *advice.notes)]
    if everything:
        lines += chain(*(_wrapped(note, None) for note in notes))
        parts = [] if advice.scores is None else [compared(advice)]
        parts += [rewards_alone(advice), _section("Assumed, and not checked", ASSUMED)]
        parts += [_section("Read as", advice.reading)] if advice.reading else []
        return "\n".join([*lines, "", *(f"\n{part}" for part in parts), ""])
    while notes and (room := MOST_LINES - 1 - len(lines)) >= min(2, len(_wrapped(notes[0], None))):
        lines += _wrapped(notes.pop(0), min(2, room))
    last = "What this rests on: --all" if not notes else f"What this rests on, and {counted(len(notes), 'more note')}: --all"
    return "\n".join([*lines, last, ""])


def _wrapped(text: str, most: int | None) -> list[str]:
    """Return the lines of a paragraph, the last one cut if there are more than so many."""
    if not text:
        return []
    return fill(printable(text, None), WIDTH, subsequent_indent="  ", max_lines=most, placeholder=" ... (--all)").splitlines()


def _section(title: str, paragraphs: Iterable[str], rows: Sequence[tuple[str, ...]] = ()) -> str:
    """Return a part of the text: its title, paragraphs of at most 100 characters a line, and a table."""
    filled = (fill(printable(text, None), WIDTH, initial_indent="  ", subsequent_indent="  ") for text in paragraphs)
    return "\n".join([title.upper(), *filled, *(["", *table_lines(rows)] if rows else [])])


def table_lines(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table, of which the first row is the header: the first column to the left, and words everywhere."""
    rows = [tuple(printable(text, None) for text in row) for row in cells]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        right = [i > 0 and (text[:1].isdigit() or text[:1] in "+-") for i, text in enumerate(row)]
        placed = (text.rjust(n) if is_right else text.ljust(n) for text, n, is_right in zip(row, widths, right, strict=True))
        lines.append(f"  {'  '.join(placed)}".rstrip())
    return lines


def percent(share: float, signed: bool = False) -> str:
    """Return a share in percent, with as many digits as a reader needs."""
    if not np.isfinite(share):
        return "no limit"
    whole = abs(100.0 * share - round(100.0 * share)) < 0.05
    digits = 0 if abs(share) >= 0.0995 or whole else 1
    return f"{100.0 * share:{'+' if signed else ''},.{digits}f}%".replace("-0%", "0%").replace("+0%", "0%")


def number(value: float) -> str:
    """Return a number with three digits, without needless ones, and as people write it: powers of ten stand far out alone."""
    rounded = float(f"{value:.3g}") if abs(value) < 1000 else value
    if not (rounded == 0.0 or 1e-9 <= abs(rounded) < 1e15):
        return f"{rounded:.3g}"
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else np.format_float_positional(rounded + 0.0, trim="-")


def interval_text(low: float, high: float, signed: bool = False) -> str:
    """Return limits in percent."""
    if not np.isfinite(high):
        return f"{percent(low, signed)} or more"
    return f"{percent(low, signed)} to {percent(high, signed)}"


def level_text(level: float) -> str:
    """Return a confidence level in percent."""
    return f"{100.0 * level:g}%"


def option(argument: str) -> str:
    """Return the command's option for an argument of the library: --min-prompts for min_prompts."""
    return f"--{argument.replace('_', '-')}"


def headline(advice: Advice, run: RunAdvice | None, found: Answer) -> str:
    """Return the one recommendation, how it compares with what is in use, and what becomes of the learning rate."""
    asked, size, scores = advice.group_size, found.group_size, advice.scores
    if size is None:
        total = f"For a whole run rewards are enough: give its number of responses ({option('total')})."
        sketch = " For a step, log sketches of gradients (gt.sketch)." if advice.missing == NO_SCORES else ""
        return f"No group size for one step can be told: {advice.missing}. {total}{sketch}"
    if run is not None:
        total, plain = number(run.total), run.costs == (0.0, 1.0)
        cost = f"of {total} responses" if plain else f"that costs {total}, with responses"
        each = f"{number(run.each)} for each of {counted(run.training_prompts, 'prompt')}"
        what = f"with {run.estimator} for the whole run {cost}, {each}"
    else:
        assert scores is not None
        named = advice.estimator is not None and (advice.baseline is not None or scores.own is not None)
        spent, batch = advice.limits.cost(found.batch_size or 0, size), counted(found.batch_size or 0, "prompt")
        what = f"with {advice.estimator if named else BASELINES[scores.baseline]} for a step: {batch} with {size:,} "
        what += f"responses each, {number(spent)} of the budget of {number(advice.limits.budget)}"
    loses = ""
    if run is None and scores is not None and asked is not None and asked in scores.choice.group_sizes:
        loss, at = scores.choice.loss, scores.choice.at(asked)
        loses = f"{percent(loss.estimate[at])} {'more error' if scores.own is None else 'to gain in efficiency'} "
        loses += f"({level_text(advice.level)} limits {interval_text(loss.low[at], loss.high[at])})"
    if found.keep:
        better = "no size has a better estimate" if found.best == size else f"the data cannot tell it from {found.best:,}"
        if run is not None:
            better = f"the rule keeps sizes from {KEPT[0]} to {KEPT[1]}"
        elif scores is not None and not scores.choice.candidates[scores.choice.at(size)]:
            better = f"its {loses} are within the tolerance of {percent(advice.tolerance)} of groups of {found.best:,}"
        return f"Keep your group size {size:,} {what}; {better}. Keep the learning rate."
    text = f"Use groups of {size:,} {what}."
    if asked is None:
        return text
    text += f" Your groups of {asked:,} have {loses}." if loses else ""
    factor = found.learning_rate
    if factor is None and run is None and advice.estimator is None:
        return f"{text} Keep the learning rate."  # with these baselines the expected step is the same at all sizes
    if factor is None:
        return f"{text} How to change the learning rate is not known."
    if isinstance(factor, float):
        return f"{text} Multiply the learning rate by about {number(factor)} for plain SGD; with Adam keep it."
    least, most = number(factor.least), number(factor.most)
    if least == most:
        return f"{text} {'Keep the learning rate' if most == '1' else f'Multiply the learning rate by {most}'}."
    about = f"{number(float(factor.factor.estimate))} ({least} to {most})"
    return f"{text} Multiply the learning rate by about {about} for plain SGD; Adam rescales its steps by itself."


def the_other(advice: Advice, run: RunAdvice | None) -> str:
    """Return what the answer would be to the question that was not asked first: for a step, or for a whole run."""
    if run is None and advice.scores is None:
        return ""  # the headline says it
    if run is None:
        return f"For a whole run the best size may be another: give its number of responses ({option('total')})."
    if advice.scores is None:
        return f"One step alone: no size can be told, as {advice.missing}."
    choice = advice.scores.choice
    span = "" if choice.low == choice.high else f" ({choice.low:,} to {choice.high:,} may be best)"
    follow = "Follow the run: its size is judged by the success at the end, and not by the error of one gradient."
    return f"One step alone would ask for groups of {choice.group_size:,}{span}. {follow}"


def how_sure(advice: Advice, run: RunAdvice | None) -> str:
    """Return which sizes cannot be told from the recommended one, and what it may lose."""
    if run is not None:
        worlds = "In whole runs over draws of five kinds of world, with answers of 1 to 256 tokens, groups of"
        lost = f"lost {LOST[0]:g} points to the best size on average, and at most {LOST[1]:g}"
        return f"Sure? A rule decides, and not the log (docs/runs.md). {worlds} {RULE} {lost}."
    if advice.scores is None:
        return ""
    choice, scores, level = advice.scores.choice, advice.scores, level_text(advice.level)
    if choice.group_sizes.size == 1:
        return f"Sure? Only this group size is allowed ({binding(advice)})."
    if choice.low == choice.high:
        return f"Sure? At {level} confidence every other group size that is allowed is worse than {choice.low:,}."
    text = f"Sure? At {level} confidence the best size is between {choice.low:,} and {choice.high:,}"
    text += "." if choice.bounded else ", the largest that was compared."
    if np.isfinite(choice.risk):
        within = f", within the tolerance of {percent(advice.tolerance)}" if advice.enough else ""
        text += f" Groups of {choice.group_size:,} are at most {percent(choice.risk)} worse than the best{within}."
    enough = choice.prompts_needed(advice.tolerance)
    needed = f"about {enough:,}" if enough else "many more"
    return text if advice.enough else f"{text} To be sure, log {needed} prompts like these {scores.prompts:,}."


def size_table(advice: Advice, told: Answer, most: int | None) -> tuple[tuple[str, ...], ...]:
    """Return a table of what sizes lose for a step, and of groups with equal rewards; of the nearest sizes."""
    asked, scores, shares = advice.group_size, advice.scores, advice.rewards.uniform
    found, first = told.group_size, (told.group_size, told.best, asked)
    allowed, prompts = (each.tolist() for each in advice.limits.batches())
    columns = {"prompts": {size: f"{count:,}" for size, count in zip(allowed, prompts, strict=True)}}
    best_step = None if scores is None else scores.choice.group_size
    if scores is not None:
        loss = scores.choice.loss
        losses = map("{} ({})".format, map(percent, loss.estimate), map(interval_text, loss.low, loss.high))
        name = "a step: more error" if scores.own is None else "a step: gain left"
        columns[name] = dict(zip(scores.choice.group_sizes.tolist(), losses, strict=True))
    limits = map(interval_text, shares.interval.low, shares.interval.high)  # all that is told where the log leaves it open
    equal = np.where(np.isfinite(shares.interval.estimate), [*map(percent, shares.interval.estimate)], [*limits])
    columns["equal rewards"] = dict(zip(shares.group_sizes.tolist(), equal, strict=True))
    centre, wanted = found or asked or 8, {*SHOWN[:6], *(size for size in (*first, best_step) if size)} & set(allowed)
    near = sorted(wanted, key=lambda size: (size not in first, abs(np.log2(size / centre))))[:most]
    rows = [("group size", *columns, "")]
    for size in sorted(near):
        marks = {"recommended": size == found, "yours": size == asked, "best for a step": found != size == best_step}
        cells = (column.get(size, "") for column in columns.values())
        rows.append((f"{size:,}", *cells, ", ".join(mark for mark, holds in marks.items() if holds)))
    return tuple(rows)


def signal(advice: Advice) -> str:
    """Return how many responses have a signal, and how strong that of a step is."""

    def limits(interval: Interval) -> str:
        low, middle, high = (number(float(one)) for one in (interval.low, interval.estimate, interval.high))
        return f"{middle} ({low} to {high})" if np.isfinite(interval.high) else f"{middle} ({low} or more)"

    sample = advice.rewards.sample
    mixed, mean = percent(sample.mixed_responses / sample.responses), limits(sample.mean_reward)
    text = f"Signal: {mixed} of the responses are in groups with different rewards; mean reward {mean}."
    if advice.scores is None:
        return text
    ratio = advice.scores.signal
    told = limits(ratio) if ratio.low > 0.0 else "the data do not tell it from 0"
    return f"{text} Signal to noise of the step's gradient: {told}."


def would_change(advice: Advice) -> str:
    """Return what would change the recommendation."""
    text = "Changes: success rates change as the policy learns, so log and plan again."
    if advice.scores is None:
        return text
    choice = advice.scores.choice
    if choice.best == choice.group_sizes.size - 1 and choice.group_sizes.size > 1:
        own = advice.scores.own is not None and choice.group_size == advice.scores.laws.largest
        what = "log more responses to each prompt" if own else f"the limit is {binding(advice)}"
        return f"{text} Larger groups may be better: {what}."
    if advice.limits.cost_prompt == 0.0:
        text += f" A cost of reading each prompt ({option('cost_prompt')}) makes larger groups better."
    return text


def warnings(advice: Advice) -> Iterable[str]:
    """Return what a reader must know before acting, a sentence or two each."""
    shares, most = advice.rewards.uniform, advice.rewards.group_sizes[1]
    if (untold := shares.group_sizes[~np.isfinite(shares.interval.estimate) & (shares.responses > most)]).size:
        needed = int(shares.responses[shares.group_sizes == untold[0]][0])
        yield f"to tell the share of equal-reward groups of {untold[0]} takes {needed} responses per prompt."
    if advice.scores is None:
        return
    if advice.scores.refusal:
        yield f"{advice.estimator} could not be planned for itself: {advice.scores.refusal}."
    elif advice.scores.estimator is not None and weighs_by_length(advice.scores.estimator):
        yield f"{advice.estimator} weighs tokens by the lengths of responses, which is left out: the plan is for its advantages."
    if advice.heavy_tailed:
        yield "few prompts make most of the error, so its limits are wide. More prompts help; more responses to each do not."
    if left := advice.rewards.sample.prompts - advice.scores.prompts:
        few = f"{counted(left, 'prompt')} with fewer than {FEWEST} responses left out where gradients are needed"
        yield f"{few}; {advice.scores.prompts:,} used."


def binding(advice: Advice) -> str:
    """Return the limits that keep out larger groups, in words."""
    names = limits_groups(advice.limits)
    return " and ".join(f"{option(name)} {getattr(advice.limits, name):,}" for name in names) if names else "the budget"


def compared(advice: Advice) -> str:
    """Return how other baselines and estimators compare with the recommendation for a step, each with its own best batch."""
    scores, lines = advice.scores, []
    assert scores is not None
    if scores.own is None:
        lines.append(TRAINERS.format(scores.choice.group_size))
        if rival := scores.rival:
            gain = percent(float(rival.gain.estimate)), interval_text(float(rival.gain.low), float(rival.gain.high))
            zero = ", if rewards keep their zero" if rival.name == "none" else ""
            batch = f"{BASELINES[rival.name]} and groups of {rival.group_size:,}"
            lines.append(f"With {batch} the error is estimated to be {gain[0]} less ({gain[1]}){zero}.")
    rows = [("instead", "group size", "gains in efficiency")]
    for one in scores.others:
        limits = interval_text(float(one.gain.low), float(one.gain.high), signed=True)
        rows.append((one.name, f"{one.group_size:,}", f"{percent(float(one.gain.estimate), signed=True)} ({limits})"))
    lines.append("Other estimators have their own best group size and learning rate here; the limits hold all at once.")
    return _section("Other baselines and estimators", lines, rows)


def rewards_alone(advice: Advice) -> str:
    """Return success rates, how an estimator weighs prompts, and how many prompts tell two policies apart."""
    rewards, sample = advice.rewards, advice.rewards.sample
    independent = f"{number(sample.effective_responses)} independent ones"
    lines = [f"For the mean reward these {sample.responses:,} responses carry as much information as {independent}."]
    if rewards.rates is not None and rewards.group_sizes[1] >= RATES_FROM:
        hard, easy = percent(float(rewards.rates.cdf(0.2))), percent(1.0 - float(rewards.rates.cdf(0.8)))
        lines.append(f"By the likeliest law, {hard} of the prompts succeed at most 20% of the time and {easy} more than 80%.")
    if rewards.weights is not None:
        shares, prompts = rewards.weights.step_shares, rewards.weights.prompts
        parts = [
            f"{kind} ({percent(float(prompts.estimate[i]))} of the prompts) {percent(float(shares.estimate[i]))} "
            f"({interval_text(float(shares.low[i]), float(shares.high[i]))})"
            for i, kind in enumerate(("hard ones", "middling ones", "easy ones"))
        ]
        weighed = f"With {rewards.weights.estimator} in groups of {rewards.weights.group_size} the expected step is shared among"
        so = f"prompts so: {parts[0]}, {parts[1]} and {parts[2]}"
        lines.append(f"{weighed} {so}. Gradients are taken to be as long as the variance of a prompt's rewards.")
    if rewards.refusal:
        lines.append(f"Not given: {rewards.refusal}.")
    if rewards.evaluations:
        one = [case for case in rewards.evaluations if case.responses == 1]
        unlike, *_, alike = sorted(one, key=lambda case: case.correlation)
        found = f"An evaluation with one response per prompt finds a difference of {number(alike.difference)} in mean reward"
        near = f"if one policy is the other a few steps on (expected rewards correlate by {number(alike.correlation)})"
        chance = f"with a chance of 80% on {alike.prompts:,} prompts {near}"
        lines.append(f"{found} {chance}, and on {unlike.prompts:,} if they are unrelated.")
    return _section("From the rewards alone", lines)


FORMAT = 6
"""Raised when a key changes its meaning or goes."""
OF_ADVICE = ("group_size", "estimator", "baseline", "level", "tolerance", "limits")
OF_CHOICE = ("group_size", "batch_size", "low", "high", "bounded", "risk", "group_sizes", "batch_sizes", "loss", "candidates")
OF_SCORES = ("baseline", "rival", "signal", "prompts", "others", "refusal")
"""What is told of the advice, of the choice for a step, and of what else scores tell."""


def to_json(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as JSON; the keys are those of `to_dict`.

    Examples
    --------
    >>> import json, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_json(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> json.loads(text)["format"]
    6
    """
    return json.dumps(to_dict(advice, run), indent=2, allow_nan=False) + "\n"


def to_dict(advice: Advice, run: RunAdvice | None = None) -> dict[str, Any]:
    """Convert an advice to a dictionary; unknown or infinite values, and those not asked for, are None.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)
    >>> gt.page.to_dict(advice)["rewards"]["prompts"]
    129
    """
    scores, rewards = advice.scores, advice.rewards
    step = None
    if scores is not None:
        step = {name: getattr(scores.choice, name) for name in OF_CHOICE} | {name: getattr(scores, name) for name in OF_SCORES}
        step |= {"prompts_needed": scores.choice.prompts_needed(advice.tolerance), "enough": advice.enough}
        step |= {"dropped": rewards.sample.prompts - scores.prompts, "heavy_tailed": advice.heavy_tailed}
    mean = {"mean": rewards.sample.mean_reward, "smallest_group": rewards.group_sizes[0], "largest_group": rewards.group_sizes[1]}
    return {
        "format": FORMAT,
        "recommendation": json_value(answer(advice, run)),
        **{name: json_value(getattr(advice, name)) for name in OF_ADVICE},
        "step": json_value(step),
        "missing": advice.missing or None,
        "run": json_value(run),
        "rewards": json_value(rewards) | json_value(rewards.sample) | json_value(mean),
        "notes": [*advice.reading, *advice.notes],
    }


def to_html(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as one page of HTML with all of the text, and the curve of what group sizes lose where it is known.

    `run` is what `gt.plan.advise_run` returns, if it was asked.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> page = gt.page.to_html(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> page.startswith("<!doctype html>")
    True
    """
    from markupsafe import Markup
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from grpo_theory.page.document import Page
    from grpo_theory.page.picture import draw_losses, picture

    page = Page("grpo-theory plan")
    screen, _, rest = to_text(advice, run, everything=True).partition("\n\n\n")
    page.section("The advice", "advice")
    page.add("code", text=screen)
    if advice.scores is not None:
        figure, drawn = Figure(figsize=(5.6, 3.9), layout="constrained"), io.StringIO()
        draw_losses(figure.add_subplot(), advice)
        figure.legend(loc="outside upper left", ncols=2)
        FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})
        caption = "What each group size loses in one step, with limits."
        page.add("figure", name="losses", caption=caption, picture=Markup(picture(drawn.getvalue())))
    page.section("What it rests on", "rests")
    page.add("code", text=rest)
    return page.rendered("html")
