"""A trainer's check in words: the convention, what contradicts it, the loss, the ratios, and what could not be checked."""

import numpy as np

from grpo_theory.checks import TrainerCheck
from grpo_theory.checks.contradictions import EXPLANATIONS, UNEXPLAINED, Contradictions
from grpo_theory.checks.conventions import Fit
from grpo_theory.checks.importance import PAIRS, ImportanceRatios
from grpo_theory.checks.regroupings import REGROUPINGS
from grpo_theory.page.section import Section, number, percent, section_text
from grpo_theory.user_text import listed
from grpo_theory.validation import counted

SHOWN_GROUPS = 5
"""The number of groups that are named."""
SHOWN_NAMES = 8
SMALL = 0.05
"""A loss below this share of the mean absolute advantage counts as 0."""
MEANINGS = {
    "advantages": "which convention the advantages follow",
    "staleness": "how far the policy has moved from the one at the start of the update",
    "mismatch": "how far the sampler's probabilities are from the trainer's",
    "direction": "how much of the update's direction is left after the ratios",
}


def check_to_text(check: TrainerCheck) -> str:
    """Format a trainer check as text, with lines of at most 100 characters except in tables.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     text = gt.page.check_to_text(gt.checks.check_log(path))
    >>> print(text.splitlines()[0])
    WHAT COULD NOT BE CHECKED
    """
    return "\n\n".join(section_text(part) for part in check_sections(check)) + "\n"


def check_sections(check: TrainerCheck) -> list[Section]:
    """Return what is to be said, in the order in which a reader asks."""
    made = (_convention, _contradictions, _loss, _above_zero, _ratios, _direction, _missing)
    parts = (make(check) for make in made)
    return [*(part for part in parts if part is not None), _read(check)]


def _convention(check: TrainerCheck) -> Section | None:
    advantages, title = check.log.advantages, "The convention of the advantages"
    if advantages is None:
        return None
    if not check.fits:
        told = (
            "All logged advantages are 0, although rewards differ within groups: this column is not what the trainer used, or "
            "nothing is learned."
            if not advantages.any() and not _all_uniform(check)
            else "In every group all rewards are equal, so every convention gives 0: the log does not tell which it is."
            if _all_uniform(check)
            else "No registered convention gives these advantages in any group whose rewards differ."
        )
        return Section(title, (told, *_other_reading(check)))
    best = check.fits[0]
    count = f"{int((best.follows & best.telling).sum()):,} of {counted(int(best.telling.sum()), 'group')} whose rewards differ"
    if not check.followed:
        return Section(
            title,
            (
                f"No registered convention gives these advantages. The nearest, {best.candidate.label}, gives them in {count}.",
                *_other_reading(check),
            ),
        )
    same = _names(check.fits)
    others = f" On this log {', '.join(same[1:])} {'gives' if len(same) == 2 else 'give'} the same." if len(same) > 1 else ""
    formula = best.candidate.estimator.advantage.description.rstrip(".")
    paragraphs = (f"The advantages follow {same[0]} in {count}.{others}", f"Its formula: {formula}.", *_parameters(best))
    return Section(title, (*paragraphs, *_other_reading(check)))


def _all_uniform(check: TrainerCheck) -> bool:
    return bool(check.log.rollouts.counts.uniform.all())


def _names(fits: tuple[Fit, ...]) -> list[str]:
    """Return the registered names that fit, or the kernel with its parameters where none is registered."""
    names = [name for one in fits for name in one.candidate.names]
    if not names:
        return [fits[0].candidate.label]
    rest = len(names) - SHOWN_NAMES
    return names if rest <= 0 else [*names[:SHOWN_NAMES], f"{rest} more"]


def _parameters(best: Fit) -> tuple[str, ...]:
    parameters = best.candidate.estimator.advantage.parameters
    shown = [f"{name} = {value:g}" for name, value in parameters.items() if name in ("ddof", "epsilon", "floor")]
    return (f"Its parameters: {', '.join(shown)}.",) if shown else ()


def _other_reading(check: TrainerCheck) -> tuple[str, ...]:
    """Return what would explain most advantages where no convention does: reversed signs, or other groups."""
    return (*_negated(check), *_regrouping(check))


def _negated(check: TrainerCheck) -> tuple[str, ...]:
    if not check.negated:
        return ()
    best = check.negated[0]
    count = f"{int((best.follows & best.telling).sum()):,} of {counted(int(best.telling.sum()), 'group')} whose rewards differ"
    return (
        f"Wrong sign: with the signs of all advantages reversed, they follow {_names(check.negated)[0]} in {count}. An update "
        "with these advantages lowers the logged reward. Either the trainer has the sign wrong, or the logged reward is a cost, "
        "of which less is better.",
    )


def _regrouping(check: TrainerCheck) -> tuple[str, ...]:
    found, sizes = check.regrouping, check.log.rollouts.sizes
    if found is None:
        ragged = not check.followed and not check.negated and sizes.min() < sizes.max() and not _all_uniform(check)
        return (_not_tried(int(sizes.min()), int(sizes.max())),) if ragged else ()
    best = found.fits[0]
    return (
        f"Wrong groups: with other groups, of {found.size} rows, the advantages follow {_names(found.fits)[0]} in "
        f"{percent(best.share)} of the groups whose rewards differ. These are {REGROUPINGS[found.name]}.",
    )


def _not_tried(fewest: int, most: int) -> str:
    return (
        f"Other groups, such as the wrong axis, are tried only where all groups have as many rows, and these have {fewest} to "
        f"{most}. Rows that were left out are missing from theirs: check a part of the log that has them all."
    )


def _contradictions(check: TrainerCheck) -> Section | None:
    found, title = check.contradictions, "Groups that contradict it"
    if found is None:
        return None
    paragraphs = []
    if found.unequal:
        paragraphs.append(
            f"In {counted(found.unequal, 'group')} of {found.judged:,}, responses with equal rewards got different advantages. "
            "No convention that reads rewards alone does that. Either the rows of a group are not the trainer's group, or the "
            "reward that it used is not the logged one."
        )
    if not check.followed:
        return Section("Groups", tuple(paragraphs)) if paragraphs else None
    if not found.total:
        paragraphs.append(f"None of {counted(found.judged, 'group')} contradicts it.")
        return Section(title, tuple(paragraphs))
    paragraphs.append(f"{found.total:,} of {counted(found.judged, 'group')} contradict it: {_first(check, found)}.")
    return Section(title, tuple(paragraphs), _reasons(found))


def _first(check: TrainerCheck, found: Contradictions) -> str:
    """Name the first groups by their prompts."""
    ids = [str(check.log.rollouts.prompts[group])[:40] for group in found.groups[:SHOWN_GROUPS]]
    more = found.total - len(ids)
    return ", ".join(ids) + (f" and {more:,} more" if more > 0 else "")


def _reasons(found: Contradictions) -> tuple[tuple[str, ...], ...]:
    words = {name: text for name, (_, text) in EXPLANATIONS.items()} | {UNEXPLAINED: "none of the explanations above fits"}
    rows = [(name, f"{count:,}", words[name]) for name, count in found.counts.items()]
    return (("explanation", "groups", "what it means"), *rows)


def _loss(check: TrainerCheck) -> Section | None:
    loss = check.loss
    if loss is None:
        return None
    small = SMALL * loss.size
    shown = f"When all ratios are 1, the loss is {_near(loss.by_response, small)} as a mean over responses"
    if np.isfinite(loss.by_token):
        shown += f", and {_near(loss.by_token, small)} as a mean over tokens"
    if loss.size == 0.0:
        told = "All advantages are 0, so the gradient of the policy loss is 0 too: nothing is learned from these responses."
    elif loss.by_group <= small:
        told = (
            "A loss of 0 is correct here and does not mean that nothing is learned. Advantages add up to 0 in every group, and "
            "where all ratios are 1 the loss is minus their mean. Its gradient is not 0. Watch the reward and the norm of the "
            "gradient."
        )
        if abs(loss.by_token) > small:
            told += " As a mean over tokens the loss is not 0, because longer responses weigh more."
    else:
        told = (
            f"Advantages do not add up to 0 in every group: their mean is up to {number(loss.by_group)}. So the loss need not be "
            "0 at the start. Its value says nothing about progress."
        )
    return Section("The loss at the start of an update", (f"{shown}.", told))


def _near(value: float, small: float) -> str:
    return "0" if abs(value) <= 1e-3 * small else number(value)


def _above_zero(check: TrainerCheck) -> Section | None:
    return Section("Log-probabilities above 0", check.log.remarks) if check.log.remarks else None


def _ratios(check: TrainerCheck) -> Section | None:
    if not check.ratios:
        return None
    low, high = 1.0 - check.clip[0], 1.0 + check.clip[1]
    paragraphs = tuple(f"{one.name.capitalize()} is {PAIRS[one.name][1]}." for one in check.ratios)
    unit = "token" if check.ratios[0].by_token else "response"
    clipped = f"clipped by sign at {number(low)} and {number(high)}"
    head = ("", *(one.name for one in check.ratios))
    rows: list[tuple[str, ...]] = [
        (f"mean ratio per {unit}", *(number(one.mean) for one in check.ratios)),
        ("largest ratio", *(number(one.largest) for one in check.ratios)),
        (f"below {number(low)}", *(percent(one.outside[0]) for one in check.ratios)),
        (f"above {number(high)}", *(percent(one.outside[1]) for one in check.ratios)),
        (clipped, *("-" if one.name == "mismatch" else _share(one.clipped) for one in check.ratios)),
        *((f"above {number(cap)}", *(percent(one.capped[cap]) for one in check.ratios)) for cap in check.ratios[0].capped),
        (f"KL per {unit} (k3), nats", *(number(one.k3) for one in check.ratios)),
        ("effective sample size, whole-response ratio", *(percent(one.effective) for one in check.ratios)),
        ("effective sample size, geometric mean ratio", *(_share(one.geometric) for one in check.ratios)),
    ]
    return Section("Importance ratios", (*paragraphs, *map(_remark, check.ratios)), (head, *rows))


def _share(share: float) -> str:
    return percent(share) if np.isfinite(share) else "not known"


def _remark(one: ImportanceRatios) -> str:
    if one.largest == 1.0 and one.k3 == 0.0:
        return f"All ratios of {one.name} are 1: both columns hold the same numbers."
    return (
        f"With {one.name} as a weight on whole responses the log carries as much information as {percent(one.effective)} of "
        "its responses."
    )


def _direction(check: TrainerCheck) -> Section | None:
    found = check.direction
    if found is None:
        return None
    text = (
        "Two updates were compared: one with ratios, a clip by sign, and a cap of "
        f"{number(check.cap)} on mismatch, and one without ratios. The first has cosine {number(found.cosine)} with the second, "
        f"and {number(found.length)} of its length."
    )
    how = (
        f"Sketches have {found.numbers} numbers, so a cosine is right to about {number(1.0 / np.sqrt(found.numbers))}. "
        "They are of whole responses: each response has the mean weight of its tokens."
    )
    return Section("What is left of the update", (text, how))


def _missing(check: TrainerCheck) -> Section | None:
    rows = [(MEANINGS[name], columns) for name, columns in check.missing.items()]
    return Section("What could not be checked", (), (("question", "columns needed"), *rows)) if rows else None


def _read(check: TrainerCheck) -> Section:
    taken = ", ".join(f"{role} = {name}" for role, name in check.log.columns.items())
    found = check.log.findings
    at = f" at {counted(len(found.steps), 'step')}" if found.steps else ""
    rest = [one for one in found.ignored if one not in check.log.columns.values()]
    unread = f"; not read: {listed(rest)}" if rest else ""
    return Section(
        "What was read",
        (
            f"{counted(found.kept, 'response')} in {counted(found.groups, 'group')}{at}; columns: {taken}{unread}.",
            *found.remarks,
            *(one for one in found.warnings if "repeat" in one),
        ),
    )
