"""The group size of a whole run, in words and a table, and as data."""

from typing import Any

from grpo_theory.page.section import Section, number, option
from grpo_theory.plan.run_advice import MOST, RunAdvice
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.validation import counted

WORTH = 0.002
"""A measurement that gains less than a fifth of a point of success is not worth its mention."""
FAR = 0.05
"""Where all levels but one lie within this share of the scale, the one at its end is an outlier."""


NOT_A_STEP = (
    "The best size for one step's gradient (--budget) may be another. It is found among all sizes and from gradients, this one "
    "among sizes that double and from success at the end."
)
"""Why the answer may differ from that for one step."""


def whole_run(run: RunAdvice, asked: int | None = None) -> Section:
    """Return the size that loses least by the end of a run, how sure that is, and what each size loses, the asked one marked."""
    lines = [_recommended(run), *_graded(run), _worlds(run), *_extrapolated(run), *_beyond(run), *_growing(run), _narrower(run)]
    lines.append(NOT_A_STEP)
    rows: list[tuple[str, ...]] = [
        ("group size", "loses on average", "in the best world", "in the middle one", "in the worst one", "")
    ]
    for place, size in enumerate(run.group_sizes):
        cells = (float(run.expected_losses[place]), *run.quantiles(place))
        judged = "recommended" if place == run.best else "as good" if run.candidates[place] else ""
        notes = judged, "yours" if size == asked else ""
        rows.append((f"{size}", *(points(cell) for cell in cells), ", ".join(filter(None, notes))))
    return Section("Group size for the whole run", tuple(lines), tuple(rows))


def points(loss: float) -> str:
    """Return a loss of mean success in points of a hundred."""
    return f"{100.0 * loss:.1f} points"


def _recommended(run: RunAdvice) -> str:
    each = number(run.each)
    text = (
        f"Use groups of {run.group_size} with {run.estimator}. Among groups of {run.group_sizes[0]} to {run.group_sizes[-1]} "
        f"they lose the least success by the end of a run, on average over {len(run.worlds)} simulated worlds. The run has "
        f"{number(run.total)} responses, {each} for each of {counted(run.training_prompts, 'prompt')}."
    )
    others = [f"{size}" for size, kept in zip(run.group_sizes, run.candidates, strict=True) if kept and size != run.group_size]
    if others:
        text += f" The simulated runs cannot tell groups of {' and '.join(others)} from them."
    worst = run.worlds[int(run.losses[:, run.best].argmax())]
    if worst.losses[run.best] >= 0.0005:
        text += f" They lose most, {points(float(worst.losses[run.best]))}, where {worst.title}."
    return text


def _graded(run: RunAdvice) -> tuple[str, ...]:
    """Return what success is where rewards are graded, and what the worlds pay."""
    if not run.graded:
        return ()
    paid = _told_apart(run.rewards)
    span = run.rewards[-1] - run.rewards[0]
    far = min(run.rewards[-1] - run.rewards[1], run.rewards[-2] - run.rewards[0]) < FAR * span
    return (
        f"Rewards are graded, so success here is the mean reward on a scale from {paid[0]}, which is 0 points, to {paid[-1]}, "
        f"which is 100. The worlds pay {len(paid)} rewards: {', '.join(paid)}. If the log has more, each stands for a cluster of "
        "neighbours." + (" One end of the scale is far from all other rewards, so that all losses look small." if far else ""),
    )


def _told_apart(rewards: tuple[float, ...]) -> list[str]:
    """Return rewards with as many digits as tell them apart, and four at least."""
    digits = next((digits for digits in range(4, 17) if len({f"{one:.{digits}g}" for one in rewards}) == len(rewards)), 17)
    return [f"{reward:.{digits}g}" for reward in rewards]


def _worlds(run: RunAdvice) -> str:
    floors = sorted({world.floor for world in run.worlds}, reverse=True)
    rare = ""
    if len(floors) > 1:
        least, usual = (_small(floor) for floor in floors[::-1])
        above = f"every prompt gets more than {_told_apart(run.rewards)[0]} at least"
        some = above if run.graded else "the prompts that the log cannot tell from 0 succeed"
        again = " at least" if run.graded else ""
        rare = f" In half of them {some} {usual} of the time, in the other half{again} {least}."
    start = "mean rewards and spreads within groups" if run.graded else "success rates"
    alike = " and by how alike the prompts' gradients are" if run.alignment is not None else ""
    weighed = f"their {'mean rewards and spreads' if run.graded else 'success rates'}{alike}"
    return (
        f"Every world starts at the {start} of this log. The {len(WORLDS)} kinds differ in how prompts and right answers "
        f"share parameters, which rewards do not show.{rare} They are weighted by {weighed}. They are small: softmax policies "
        "trained by gradient ascent, each size at its own best learning rate. They show which size fits which mechanism, but "
        "not how large the loss of a language model would be."
    )


def _small(rate: float) -> str:
    return f"{100.0 * rate:.2g}%"


def _extrapolated(run: RunAdvice) -> tuple[str, ...]:
    if not run.extrapolated:
        return ()
    side = "fewer" if run.each < run.simulated else "more"
    return (
        f"This is extrapolated: the worlds were run with {number(run.simulated)} responses per prompt, because runs with {side} "
        f"are not simulated. The run is taken to train on {counted(run.training_prompts, 'prompt')} "
        f"({option('training_prompts')}).",
    )


def _beyond(run: RunAdvice) -> tuple[str, ...]:
    """Return that no runs judged such advice, where that is so."""
    if run.judged:
        return ()
    return (
        f"Not judged: runs that tested this advice had up to {run.most_judged} responses per prompt, and yours has "
        f"{number(run.each)}. Take it for what the simulated worlds say.",
    )


def _growing(run: RunAdvice) -> tuple[str, ...]:
    """Return that larger groups may serve a long run better, where that is so."""
    if not run.larger_may_serve:
        return ()
    return (
        f"Larger groups may serve better than this table says. {run.estimator} weights rare prompts more in larger groups, and "
        "this log leaves open how rarely some prompts succeed. In whole runs of small softmax policies on eight prompts, the "
        "best size rose to 32 and more where each was asked thousands of times.",
    )


def _narrower(run: RunAdvice) -> str:
    """Return which measurement would gain most."""
    name, gain = max(run.worth.items(), key=lambda item: item[1])
    if gain < WORTH:
        return (
            "No measurement would change much: knowing how prompts share parameters, or how rarely the unsolved ones succeed, "
            f"would gain less than {points(WORTH)} on average."
        )
    if name == "rare":
        return (
            "More responses to the prompts that were never solved would narrow this most: knowing how rarely they succeed "
            f"would gain {points(gain)} on average."
        )
    return (
        f"Knowing how prompts share parameters would narrow this most, and would gain {points(gain)} on average. To find out, "
        "follow each prompt's success in a short run, and log sketches of gradients."
    )


def run_record(run: RunAdvice) -> dict[str, Any]:
    """Return the advice on a whole run as numbers, strings, lists and dictionaries."""
    sizes = [
        {
            "group_size": int(size),
            "loss": run.expected_losses[place],
            **dict(zip(("best", "middle", "worst"), run.quantiles(place), strict=True)),
            "may_be_best": bool(run.candidates[place]),
        }
        for place, size in enumerate(run.group_sizes)
    ]
    worlds = [
        {
            "title": world.title,
            "floor": world.floor,
            "weight": world.weight,
            "start": world.start,
            "success": world.success,
            "standard_errors": world.errors,
        }
        for world in run.worlds
    ]
    return {
        "estimator": run.estimator,
        "total": run.total,
        "training_prompts": run.training_prompts,
        "responses_per_prompt": run.each,
        "simulated_responses_per_prompt": run.simulated,
        "most_simulated": MOST,
        "extrapolated": bool(run.extrapolated),
        "judged": run.judged,
        "group_size": run.group_size,
        "group_sizes": sizes,
        "worlds": worlds,
        "alignment": run.alignment,
        "rewards": run.rewards,
        "worth": {name: max(float(gain), 0.0) for name, gain in run.worth.items()},
    }
