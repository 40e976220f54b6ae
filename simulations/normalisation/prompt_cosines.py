"""N10, N11: how orthogonal SmolLM2's questions are, by their representations and by their gradients as the head learns, exact.

All pairs of the 500 questions are compared. The printed numbers are of another model, of 1,000 pairs, and of a model whose hidden
states learn. Here the hidden states are frozen, so a drift of the gradients' cosines comes from the policies alone.

In the controls the mean, which all representations have in common, is added once more, or all features are taken as equal. For
the drift, prompts share no feature, so their cosines stay 0.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.harness.study import Cell, Settings
from simulations.normalisation.heads import (
    NEAR,
    OWN,
    State,
    ascent,
    cosines,
    gram,
    head_problem,
    hidden_states,
    label,
    near_orthogonal,
)
from simulations.normalisation.measured_statements import ORTHOGONAL_GRADIENTS
from simulations.statements import stated

REPRESENTATIONS, MEAN, SHARE, WHITENED_SHARE, GRADIENTS = stated("N10", "N10/mean", "N10/share", "N10/whitened", "N11")
DRIFT = stated("N11/drift")

PROBLEMS = ("lm-few-shot", "lm-zero-shot", "lm-instruct")
WHITENED = 0.01
"""The ridge of the coordinates in which the head is trained, as in `trained_heads`."""
RIDGES: tuple[float | str, ...] = (OWN, 1.0, WHITENED)
END, MOST_UPDATES, STRIDE = 0.9, 1000, 0.1
TIMES = ("start", "middle", "end")
"""Success as it is at first, half-way, and END."""
PRINTED_MEAN, PRINTED_SHARE, BELOW = 0.088, 0.9, 0.15
PRINTED_NEAR = dict(zip(TIMES, (0.977, 0.803, 0.524), strict=True))
FALL = 0.1
"""A drift of a tenth of the pairs is a quarter of what is printed."""
EDGES = np.linspace(-1.0, 1.0, 81)


def cells(quick: bool) -> list[Cell]:
    """One cell for each way of asking; quick only looks at one."""
    return [Cell({"problem": name}) for name in (PROBLEMS[:1] if quick else PROBLEMS)]


def representations(hidden: Array) -> dict[str, Array]:
    """Return hidden states as they are, less their mean, whitened, and with the mean once more for the control."""
    mean = hidden.mean(axis=0)
    powers, directions = np.linalg.eigh(hidden.T @ hidden / len(hidden) + WHITENED * np.eye(hidden.shape[1]))
    whitened = hidden @ (directions / np.sqrt(powers)) @ directions.T
    return {"raw": hidden, "centred": hidden - mean, "whitened": whitened, "with the mean": hidden + mean}


def milestones(path: Iterator[State], end: float) -> list[State]:
    """Return the start of a path, and where its mean success is first half-way to an end, and at it.

    Raises
    ------
    ValueError
        If the path does not get there.
    """
    reached: list[State] = []
    wanted = 0.0
    for now in path:
        success = float(now.value.mean())
        while success >= wanted:
            reached.append(now)
            if len(reached) == len(TIMES):
                return reached
            wanted = end if len(reached) == 2 else (success + end) / 2.0
    raise ValueError(f"the path must reach a mean success of {end:g}")


def density(cosines_of: Array) -> Iterator[dict[str, float | str]]:
    """Yield the density of cosines, for the figure."""
    heights, _ = np.histogram(cosines_of, EDGES, density=True)
    for middle, height in zip((EDGES[:-1] + EDGES[1:]) / 2.0, heights, strict=True):
        yield {"quantity": "density", "cosine": float(middle), "estimate": float(height)}


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield what is printed of representations, and of gradients at three times in three systems of coordinates."""
    name = settings["problem"]
    yield from of_representations(name)
    path = ascent(head_problem(name, WHITENED), 0.0, MOST_UPDATES, STRIDE)
    policies = dict(zip(TIMES, milestones(path, END), strict=True))
    for ridge in RIDGES:
        yield from of_gradients(name, ridge, policies)


def of_representations(name: str) -> Iterator[Comparison]:
    """Yield means and shares of the cosines of hidden states."""
    mean, above = {}, {}
    for what, states in representations(hidden_states(gt.gallery.problem(name))).items():
        unit = states / np.linalg.norm(states, axis=1, keepdims=True)
        between = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
        mean[what], above[what] = float(np.abs(between).mean()), 1.0 - near_orthogonal(between, BELOW)
    broken, most = "with the mean", 1.0 - PRINTED_SHARE
    for what in ("raw", "centred"):
        where = f"{name}, hidden states {what}"
        yield MEAN.compare(where, mean[what], PRINTED_MEAN, broken=mean[broken])
        yield SHARE.compare(where, above[what], most, broken=above[broken])
    yield WHITENED_SHARE.compare(f"{name}, ridge {WHITENED:g}", above["whitened"], most, broken=above[broken])


def of_gradients(name: str, ridge: float | str, policies: dict[str, State]) -> Iterator[Comparison | dict[str, Any]]:
    """Yield shares of near-orthogonal gradients, and their fall, in one system of coordinates."""
    where, products = f"{name}, {label(ridge)}", gram(head_problem(name, ridge))
    near, apart = {}, {}
    for time, now in policies.items():
        between = cosines(products, now.covectors)
        at = {"problem": name, "what": "gradients", "coordinates": label(ridge), "time": time, "success": float(now.value.mean())}
        near[time] = near_orthogonal(between)
        yield at | {"quantity": f"share below {NEAR:g}", "estimate": near[time]}
        yield from (at | row for row in density(between))
        apart[time] = near_orthogonal(cosines(np.diag(np.diag(products)), now.covectors))
        same = near_orthogonal(cosines(np.ones_like(products), now.covectors))
        # Equal features have about the share printed for the end, so the control is held against that of the start.
        start = PRINTED_NEAR[TIMES[0]]
        yield ORTHOGONAL_GRADIENTS.compare(
            f"{where}, {time}", near[time], PRINTED_NEAR[time], broken=same, broken_prediction=start
        )
    fall, none = (shares["end"] - shares["start"] for shares in (near, apart))
    yield DRIFT.compare(where, fall, -FALL, broken=none)
