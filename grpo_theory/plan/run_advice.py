"""A group size for a whole run: a rule, because no advice from a log beats it by more than its error (docs/runs.md)."""

from dataclasses import dataclass

from grpo_theory.estimation import Estimator, find
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.intervals.rollouts import Groups
from grpo_theory.logs import RolloutLog
from grpo_theory.plan.advice import UNNAMED, check_independent, check_informative, parts
from grpo_theory.validation import Argument, ArgumentError, as_count, as_not_negative, as_positive

RULE, KEPT = 8, (4, 32)
"""The group size for a run, and the least and the most in use that are kept."""
LOST = (0.5, 2.5)
"""The points that groups of 8 lose to the best size, on average and at most by estimate, in the worlds of docs/runs.md."""

SLOPES = {False: 0.3, True: 0.45}
"""By how many octaves the best rate of plain ascent falls where the size doubles, undivided and divided (docs/runs.md)."""


@dataclass(frozen=True)
class RunAdvice:
    """The group size for a whole run.

    Attributes
    ----------
    estimator : str
        The estimator that is trained with.
    total : float
        What the run may cost: its responses, where a response costs 1 and a prompt nothing.
    training_prompts : int
        The prompts that are trained on.
    group_size : int
        The recommended size: the one in use if it is kept.
    asked : int or None
        The group size in use.
    keep : bool
        Whether the size in use is kept.
    learning_rate : float or None
        By what to multiply plain ascent's learning rate, from the size in use to the recommended one, at equal responses per
        update.  None where nothing changes.  With Adam the best rate does not move.
    costs : (float, float)
        Of a prompt in an update, and of a response.
    each : float
        The responses of the run over the prompts trained on, in groups of the recommended size.
    """

    estimator: str
    total: float
    training_prompts: int
    group_size: int
    asked: int | None
    keep: bool
    learning_rate: float | None
    costs: tuple[float, float]
    each: float


def advise_run(
    rollouts: RolloutLog | Groups | RewardCounts,
    total: float,
    *,
    training_prompts: int | None = None,
    estimator: str | Estimator | None = None,
    group_size: int | None = None,
    costs: tuple[float, float] = (0.0, 1.0),
    largest: int = KEPT[1],
) -> RunAdvice:
    """Advise on the group size of a whole run of training: groups of 8, or the size in use from 4 to 32.

    Parameters
    ----------
    rollouts : RolloutLog, RaggedRollouts, Rollouts or RewardCounts
        As `gt.read_rollouts` returns them, with at least two different rewards.
    total : float
        What the whole run may cost: its responses of all prompts and updates, if costs are not given.
    training_prompts : int, optional
        How many prompts are trained on; those of the log if it is not given.
    estimator : str or Estimator, optional
        The estimator that is trained with: a name of `gt.estimators()`. "rloo" if it is not given.
    group_size : int, optional
        The size in use.
    costs : (float, float), default (0, 1)
        Of a prompt in an update, whatever its group's size, and of a response, in the unit of the total.
    largest : int, default 32
        The largest group size that is allowed.

    Returns
    -------
    RunAdvice

    Raises
    ------
    ValueError
        If all rewards are equal, and if the total is not finite or less than one group.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> log = gt.read_rollouts("examples/rollouts.jsonl")
    >>> advice = gt.plan.advise_run(log, 20_000, training_prompts=1000, estimator="trl_grpo", group_size=64)
    >>> advice.group_size, advice.keep, advice.each
    (8, False, 20.0)
    """
    _, counts = parts(rollouts)
    check_independent(rollouts.findings if isinstance(rollouts, RolloutLog) else None)
    check_informative(counts)
    chosen = find(UNNAMED if estimator is None else estimator)
    paid = as_not_negative("cost_prompt", costs[0]), as_positive("cost_response", costs[1])
    number, asked = check_total(total, paid), None if group_size is None else as_count("group_size", group_size, 2)
    trained_on = counts.prompts if training_prompts is None else as_count("training_prompts", training_prompts)
    least = max(2, chosen.advantage.minimum_group_size)
    most = max(least, min(as_count("largest", largest, 2), int((number - paid[0]) / paid[1])))
    keep = asked is not None and max(KEPT[0], least) <= asked <= min(KEPT[1], most)
    size, factor = asked if keep and asked else min(max(RULE, least), most), None
    if asked is not None and asked != size:
        divides = affine_coefficients(chosen.advantage, RULE) is None  # by what depends on the rewards
        factor = (asked / size) ** SLOPES[divides]
    each = number / (paid[1] + paid[0] / size) / trained_on
    return RunAdvice(chosen.name, number, trained_on, size, asked, keep, factor, paid, each)


def check_total(total: float, costs: tuple[float, float] = (0.0, 1.0)) -> float:
    """Return what a run may cost as a float; ValueError unless it is finite and pays at least one group of two."""
    number, pair = as_positive("total", total), costs[0] + 2.0 * costs[1]
    if number < pair:
        raise ArgumentError(Argument("total"), f" must pay at least one group of 2, which costs {pair:g}, got {total:g}")
    return number
