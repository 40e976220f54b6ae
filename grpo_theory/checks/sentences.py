"""The words in which `read`, `check`, `watch` and `gt.live` speak of a log: pure functions of numbers.

Facts, a piece of a line each: `percent`, `share_text`, `signal`, `steps_text`.
Advice, a sentence or None where there is nothing to do: `difficulty`, `fall`, `one_baseline`, `multiple`,
`contradicting`, `unequal`.
"""

from collections.abc import Mapping, Sequence

from grpo_theory.checks.estimates import Change, Estimate
from grpo_theory.validation import counted

NAMED = 5
"""The number of groups that are named."""
MOST = 0.5
"""Groups of one kind are too many if the lower limit of their share is above this: most responses are then wasted."""
MATTERS = 0.05
"""A fall is worth a sentence if it is at least this share of the range of the rewards."""
NO_BASELINE = 1e-5
"""A baseline, or a difference of a factor from 1, that is rounding."""
PLACES = {
    "turns": "a response counts once per turn in the mean and the deviation, so that long ones count more",
    "parts": "{} rows of a prompt, one after the other, are a group",
    "consecutive": "{} neighbouring rows are a group, whatever their prompt",
    "strided": "the first response of every prompt is in one group, the second in another: the wrong axis",
}
"""What is in a group, where it is not the responses to a prompt."""


def percent(share: float) -> str:
    """Return a share in percent, with a decimal where it is neither 0 nor at least 10%, nor near 100%."""
    if share != share:
        return "not known"
    fine = 0.0 < share < 0.0995 or 0.9905 < share < 1.0
    return f"{share:.{1 if fine else 0}%}".replace(".0%", "%")


def share_text(share: Estimate) -> str:
    """Return a share with its limits: 40% (32% to 49%)."""
    return f"{percent(share.value)} ({percent(share.low)} to {percent(share.high)})"


def signal(mixed: Estimate, right: Estimate, wrong: Estimate) -> str:
    """Return how many groups have differing rewards, and how many have none because all are right, or all wrong."""
    if right.value != right.value:
        return f"mixed {share_text(mixed)} of the groups; the log has one reward, and right and wrong cannot be told apart"
    return f"mixed {share_text(mixed)}, all right {share_text(right)}, all wrong {share_text(wrong)} of the groups"


def difficulty(right: Estimate, wrong: Estimate, size: int) -> str | None:
    """Return what to do if most groups are surely all right, or surely all wrong; groups have `size` responses."""
    if right.value != right.value:
        return "Check the reward function: all rewards are equal, nothing is learned, and right and wrong cannot be told apart."
    if right.low > MOST:
        why = f"Too easy: {percent(right.value)} of the groups are all right. Take harder prompts or leave out the solved ones;"
        return f"{why} larger groups would not help."
    if wrong.low > MOST:
        why = f"Too hard: {percent(wrong.value)} of the groups are all wrong. Take easier prompts, start from a better policy,"
        return f"{why} or use more than {size} responses per prompt."
    return None


def steps_text(step: float, low: float, high: float) -> str:
    """Return a step with its limits, if they differ: step 44 (42 to 46)."""
    return f"step {step:g}" + (f" ({low:g} to {high:g})" if low < high else "")


def fall(change: Change, longer: Change | None = None) -> str:
    """Return what to do about a reward that fell; responses may have become longer."""
    beside = "" if longer is None else f" Responses have become longer since step {longer.since.value:g}."
    since, start, end = change[:3]
    return f"Go back to the checkpoint of {steps_text(*since)}: the mean reward fell from {start:.2g} to {end:.2g} since.{beside}"


def one_baseline(baseline: float, is_mean: bool) -> str:
    """Return what is wrong if one baseline is subtracted from all rewards of a step."""
    if abs(baseline) < NO_BASELINE and not is_mean:
        return "Repair the advantages: no baseline is subtracted. Each row may have a group's id of its own."
    own = ", the mean reward of the whole step," if is_mean else ""
    return f"Repair the advantages: the same baseline ({baseline:.3g}){own} is subtracted in all groups, which are not used."


def multiple(factor: float, names: str) -> str:
    """Return what is wrong with advantages that are a multiple of a convention's."""
    times = "" if abs(abs(factor) - 1.0) < NO_BASELINE else f", times {abs(factor):.4g}"
    if factor < 0.0:
        return (
            f"Wrong sign: with the signs of all advantages reversed, they follow {names}{times}. Either the trainer has the sign "
            "wrong, or the logged reward is a cost."
        )
    return f"The advantages are those of {names}{times}: unless that is meant, the learning rate is off by this factor."


def contradicting(total: int, judged: int, prompts: Sequence[str], reasons: Mapping[str, int]) -> str:
    """Return what is wrong with groups that do not follow the convention of the others, by their prompts and reasons."""
    names = ", ".join(prompts[:NAMED]) + (f" and {total - NAMED:,} more" if total > NAMED else "")
    why = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())
    told = f"Look at the advantages of {total:,} of {counted(judged, 'group')}: they contradict the convention of the others"
    return f"{told}. The likely reason is: {why}. The groups are those of: {names}."


def unequal(groups: int, judged: int) -> str:
    """Return what is wrong where responses of a group with equal rewards have different advantages."""
    told = f"In {counted(groups, 'group')} of {judged:,}, equal rewards got different advantages."
    return f"{told} Either the rows of a group are not the trainer's group, or the reward that it used is not the logged one."
