"""N10, N11: how orthogonal SmolLM2's questions are: their representations, and their gradients as the head learns.

All pairs of the 500 questions, exact.  The printed numbers are those of another model, of 1,000 pairs, and of a model whose
hidden states learn; here they are frozen, so that a drift of the gradients' cosines is one of the policies' alone.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.claims import claim, unconverted
from simulations.normalisation.heads import OWN, State, ascent, cosines, gram, head_problem, hidden_states, label, near_orthogonal

PROBLEMS = ("lm-few-shot", "lm-zero-shot", "lm-instruct")
WHITENED = 0.01
"""The ridge of the coordinates in which the head is trained, as in `trained_heads`."""
RIDGES: tuple[float | str, ...] = (OWN, 1.0, WHITENED)
END, MOST_UPDATES, STRIDE = 0.9, 1000, 0.1
TIMES = ("start", "middle", "end")
"""Success as it is at first, half-way, and END."""
PRINTED_MEAN, PRINTED_SHARE, BELOW = 0.088, 0.9, 0.15
PRINTED_NEAR = dict(zip(TIMES, (0.977, 0.803, 0.524), strict=True))
MARGIN = 0.1
"""Of printed cosines and shares, relative: a figure of which the first digit holds would be read as the same finding."""
FALL = 0.1
"""A drift of a tenth of the pairs is a quarter of what is printed."""
EDGES = np.linspace(-1.0, 1.0, 81)


def cells(quick: bool) -> list[Cell]:
    """One cell for each way of asking; exact, so quick only looks at one."""
    common = {"ridges": list(RIDGES), "end": END, "updates": MOST_UPDATES, "stride": STRIDE}
    return [Cell({"problem": name, **common}) for name in (PROBLEMS[:1] if quick else PROBLEMS)]


def representations(hidden: Array) -> dict[str, Array]:
    """Return hidden states as they are, less their mean, whitened, and with the mean once more for the control."""
    mean = hidden.mean(axis=0)
    powers, directions = np.linalg.eigh(hidden.T @ hidden / len(hidden) + WHITENED * np.eye(hidden.shape[1]))
    whitened = hidden @ (directions / np.sqrt(powers)) @ directions.T
    return {"raw": hidden, "centred": hidden - mean, "whitened": whitened, "with the mean": hidden + mean}


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Rows:
    """Return the cosines of representations, and those of gradients at three times in three systems of coordinates."""
    name = settings["problem"]
    hidden = representations(hidden_states(gt.gallery.problem(name)))
    found = []
    for what, states in hidden.items():
        unit = states / np.linalg.norm(states, axis=1, keepdims=True)
        found += _measured({"what": what}, (unit @ unit.T)[np.triu_indices(len(unit), 1)])
    problem = head_problem(name, WHITENED)
    policies = milestones(ascent(problem, 0.0, settings["updates"], settings["stride"]), settings["end"])
    for ridge in settings["ridges"]:
        products = gram(head_problem(name, ridge))
        for time, now in zip(TIMES, policies, strict=True):
            at = {"what": "gradients", "coordinates": label(ridge), "time": time, "success": float(now.value.mean())}
            found += _measured(at, cosines(products, now.covectors))
            found += _measured(at | {"what": "apart"}, cosines(np.diag(np.diag(products)), now.covectors), shape=False)
            found += _measured(at | {"what": "covectors"}, cosines(np.ones_like(products), now.covectors), shape=False)
    return found


def milestones(path: Iterator[State], end: float) -> list[State]:
    """Return the start of a path, and where its mean success is first half-way to an end, and at it.

    Raises
    ------
    ValueError
        If the path does not get there.
    """
    found: list[State] = []
    wanted = 0.0
    for now in path:
        success = float(now.value.mean())
        while success >= wanted:
            found.append(now)
            if len(found) == len(TIMES):
                return found
            wanted = end if len(found) == 2 else (success + end) / 2.0
    raise ValueError(f"the path must reach a mean success of {end:g}")


def _measured(at: dict[str, Any], found: Array, shape: bool = True) -> Rows:
    sizes = np.abs(found)
    measured = {
        "mean": float(found.mean()),
        "sd": float(found.std()),
        "mean size": float(sizes.mean()),
        "sd of size": float(sizes.std()),
        "share below 0.1": near_orthogonal(found),
        "share below 0.15": near_orthogonal(found, BELOW),
    }
    rows: Rows = [at | {"quantity": quantity, "estimate": value} for quantity, value in measured.items()]
    if shape:
        density, _ = np.histogram(found, EDGES, density=True)
        middles = (EDGES[:-1] + EDGES[1:]) / 2.0
        rows += [
            at | {"quantity": "density", "cosine": x, "estimate": y}
            for x, y in zip(middles.tolist(), density.tolist(), strict=True)
        ]
    return rows


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each representation, system of coordinates, time and quantity."""
    last = {"prediction": np.nan, **EXACT}
    return [{"problem": settings["problem"]} | row | last for row in results[0]]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Printed means and shares, and the drift of shares, for each way of asking.

    The controls: representations with their mean once more, which all have in common; cosines with all features taken for the
    same; and for the drift the cosines of prompts that share no feature, which stay 0.
    """
    found = []
    table = table[table["quantity"] != "density"]
    for name, part in table.groupby("problem", sort=False):
        states = part[part["coordinates"].isna()].set_index(["what", "quantity"])["estimate"]
        common = "with the mean"
        for what in ("raw", "centred"):
            where = f"{name}, hidden states {what}"
            means = (exact(states[one, "mean size"], PRINTED_MEAN, MARGIN) for one in (what, common))
            found.append(claim("N10/mean", where, *means))
            shares = (exact(1.0 - states[one, "share below 0.15"], 1.0 - PRINTED_SHARE) for one in (what, common))
            found.append(claim("N10/share", where, *shares))
        shares = (exact(1.0 - states[one, "share below 0.15"], 1.0 - PRINTED_SHARE) for one in ("whitened", common))
        found.append(claim("N10/whitened", f"{name}, ridge {WHITENED:g}", *shares))
        near = part[part["quantity"] == "share below 0.1"].set_index(["what", "coordinates", "time"])["estimate"]
        for ridge in [label(one) for one in RIDGES]:
            where = f"{name}, {ridge}"
            for time in TIMES:
                both = (exact(near[what, ridge, time], PRINTED_NEAR[time], MARGIN) for what in ("gradients", "covectors"))
                found.append(claim("N11/printed", f"{where}, {time}", *both))
            drifts = (exact(near[what, ridge, "end"] - near[what, ridge, "start"], -FALL) for what in ("gradients", "apart"))
            found.append(claim("N11/drift", where, *drifts))
    return found


STUDY = unconverted(
    "prompt_cosines",
    "N10, N11: how orthogonal SmolLM2's questions are, by their representations and by their gradients",
    cells,
    compute,
    rows,
    claims,
    ("N10/mean", "N10/share", "N10/whitened", "N11/printed", "N11/drift"),
)
