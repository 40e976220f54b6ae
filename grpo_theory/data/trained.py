"""SmolLM2-135M-Instruct, trained on arithmetic: what its runs reached, and its scores on the way."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from grpo_theory.data.questions import read_arrays
from grpo_theory.validation import Array, Integers, outline

VERSION = 1
"""Of the form of the records that this package reads."""
LOGITS = 10
FILES = {"last block": "trained_model", "adapters": "trained_adapters"}
"""The files by what was trained."""
LONGER = "longer_"
"""What the names of longer runs' arrays begin with."""


class TrainedArm(NamedTuple):
    """What a run was trained with.

    Attributes
    ----------
    estimator : str
        "dr_grpo", or "grpo", which divides by the group's standard deviation.
    optimiser : str
        "Adam", or "SGD" in balanced coordinates.
    group_size : int
        An update has 128 responses, whatever the group size.
    rate : float
        The learning rate, the same for all updates.
    ratio : str
        The use of importance ratios: "none", "unclipped", "by sign" (clipped as PPO does) or "upper only" (as TIC-GRPO does).
    reuse : int
        Updates on one rollout.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> arms = {run.arm for run in gt.data.trained_model().runs}
    >>> sorted({(arm.estimator, arm.optimiser) for arm in arms})
    [('dr_grpo', 'Adam'), ('grpo', 'Adam')]
    """

    estimator: str
    optimiser: str
    group_size: int
    rate: float
    ratio: str
    reuse: int

    def __repr__(self) -> str:
        return outline(self)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A run of an arm.

    Attributes
    ----------
    arm : TrainedArm
    seed : int
    success, held_out : ndarray, shape (L,)
        Exact mean success on the M training questions and on the others, after the L numbers of updates; 0 once a run diverged.
    no_signal, dropped : ndarray, shape (L,)
        Share of groups whose rewards are all equal, and of responses that the clip drops, since the number of updates before.
    by_question : ndarray, shape (Q,)
        Each question's success at the end.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> run = gt.data.trained_model().runs[0]
    >>> run.arm.estimator, bool(run.success[-1] > run.success[0])
    ('dr_grpo', True)
    """

    arm: TrainedArm
    seed: int
    success: Array
    held_out: Array
    no_signal: Array
    dropped: Array
    by_question: Array
    __repr__ = outline


@dataclass(frozen=True, eq=False)
class TrainedCourse:
    """Scores of the M training questions at C policies on the way of one run, exact sums over the ten answers.

    In balanced coordinates each array of parameters (the adapters of each kind of matrix) is scaled by one number. The number
    makes the mean squared length of the questions' gradients of success equal to 1 in the array at the start.

    Attributes
    ----------
    updates : ndarray of int, shape (C,)
    success : ndarray, shape (C, M)
    gram : ndarray, shape (C, M, M)
        Inner products of the questions' gradients of success, in balanced coordinates.
    powers : ndarray, shape (C, M, 2)
        Mean squared length of the score given a wrong and given a right answer, in balanced coordinates.
    own_gram, own_powers : ndarray
        The same in the model's own coordinates, where the head, if it learns, has nearly all of the squared length at the start.
    states : ndarray, shape (C, M, M)
        Cosines between the last hidden states of the questions.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> course = gt.data.trained_model().courses["plain"]
    >>> course.success.shape, course.gram.shape
    ((7, 40), (7, 40, 40))
    """

    updates: Integers
    success: Array
    gram: Array
    powers: Array
    own_gram: Array
    own_powers: Array
    states: Array
    __repr__ = outline


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Q questions of the arithmetic set, of which the first M were trained on; R runs, and courses along some of them.

    Attributes
    ----------
    questions : ndarray of int, shape (Q,)
        Rows of `gt.data.arithmetic`, asked after 16 solved examples.
    n_trained : int
        M.
    updates : ndarray of int, shape (L,)
        Numbers of updates after which runs were looked at, the first 0.
    runs : tuple of TrainedRun
    longer_updates : ndarray of int, shape (L,)
        Numbers of updates after which longer runs were looked at; the first is 0.
    longer : tuple of TrainedRun
        These runs, of seeds that no other run has; none where only the last block learned.
    courses : mapping of str to TrainedCourse
        The courses "plain" and "divided" ascend along exact gradients in balanced coordinates. In "divided", each question's
        gradient is divided by the standard deviation of its reward. The other courses are sampled runs of the first seed, named
        "estimator, G = group size".
    kernel : ndarray, shape (M, 10, M, 10)
        At the start, inner products of all logits' gradients in balanced coordinates.
    probabilities : ndarray, shape (M, 10)
        The probabilities of the digits, at the start.
    provenance : dict
        How the records were made, from what, with which versions.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> model = gt.data.trained_model()
    >>> model.n_trained, model.updates[0].item(), model.kernel.shape
    (40, 0, (40, 10, 40, 10))
    """

    questions: Integers
    n_trained: int
    updates: Integers
    runs: tuple[TrainedRun, ...]
    longer_updates: Integers
    longer: tuple[TrainedRun, ...]
    courses: Mapping[str, TrainedCourse]
    kernel: Array
    probabilities: Array
    provenance: dict[str, Any]
    __repr__ = outline


@cache
def trained_model(trained: str = "last block") -> TrainedModel:
    """Load the records of a trained language model; the file's checksum is verified.

    Parameters
    ----------
    trained : {"last block", "adapters"}
        The parameters that learned. The name "last block" stands for the last block, the last norm and the head; everything below
        is frozen. The name "adapters" stands for low-rank adapters (LoRA) on all matrices of all blocks, so all hidden states
        move.

    Raises
    ------
    ValueError
        If there are no such records, or the file has records of another version. Also if the file does not have the checksum that
        the package states.

    Examples
    --------
    >>> data = trained_model("adapters")
    >>> len(data.runs), round(float(data.runs[0].success[0]), 3)
    (680, 0.158)
    >>> len(data.longer), data.longer_updates[-1].item()
    (80, 384)
    """
    if trained not in FILES:
        raise ValueError(f"trained must be one of {sorted(FILES)}, got {trained!r}")
    provenance, data = read_arrays(FILES[trained])
    check_version(provenance)
    longer = {name.removeprefix(LONGER): array for name, array in data.items() if name.startswith(LONGER)}
    return TrainedModel(
        questions=data["questions"].astype(np.int64),
        n_trained=int(data["probabilities"].shape[0]),
        updates=data["updates"].astype(np.int64),
        runs=_runs(data),
        longer_updates=longer.get("updates", np.zeros(1)).astype(np.int64),
        longer=_runs(longer) if longer else (),
        courses=MappingProxyType(dict(_courses(data))),
        kernel=_square(data["kernel"]).reshape(-1, LOGITS, data["probabilities"].shape[0], LOGITS),
        probabilities=data["probabilities"].astype(np.float64),
        provenance=provenance,
    )


def check_version(provenance: Mapping[str, Any]) -> None:
    """Raise ValueError unless the records have the version that this package reads."""
    found = provenance.get("version")
    if found != VERSION:
        raise ValueError(
            f"the records of the trained model have version {found}, and this package reads version {VERSION}: "
            "reinstall the package, or make the records anew with "
            f"{provenance.get('made_by', 'tools/language_model/train_language_model.py')}"
        )


def _runs(data: Mapping[str, np.ndarray]) -> tuple[TrainedRun, ...]:
    """Return the runs of the arrays, one a row."""
    found = []
    for arm, seed, looks, ends in zip(data["arms"].tolist(), data["seeds"], data["looks"], data["ends"], strict=True):
        estimator, optimiser, size, rate, ratio, reuse = arm
        trained = TrainedArm(estimator, optimiser, int(size), float(rate), ratio, int(reuse))
        success, held_out, no_signal, dropped = looks.astype(np.float64).T
        found.append(TrainedRun(trained, int(seed), success, held_out, no_signal, dropped, ends.astype(np.float64)))
    return tuple(found)


def _courses(data: Mapping[str, np.ndarray]) -> list[tuple[str, TrainedCourse]]:
    """Return the courses by name, each a stretch of the arrays."""
    names = data["course_names"].tolist()
    starts = np.flatnonzero(np.r_[True, data["course"][1:] != data["course"][:-1]])
    found = []
    for name, first, last in zip(names, starts, [*starts[1:], len(data["course"])], strict=True):
        at = slice(first, last)
        grams = {key: np.stack([_square(each) for each in data[key][at]]) for key in ("gram", "own_gram", "states")}
        rest = {key: data[key][at].astype(np.float64) for key in ("powers", "own_powers")}
        success, updates = data["success"][at].astype(np.float64), data["course_updates"][at].astype(np.int64)
        found.append((name, TrainedCourse(updates=updates, success=success, **grams, **rest)))
    return found


def _square(half: np.ndarray) -> Array:
    """Return a symmetric matrix of the entries on and above its diagonal."""
    size = int(np.sqrt(2 * len(half)))
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = half
    return found + np.triu(found, 1).T
