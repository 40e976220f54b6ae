"""Lemma 14, on which U8 rests: the largest values that its hypotheses allow a sequence, exactly, against its bound."""

from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import exact, largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.theory.bounds import first_index, largest_sequence, printed_first_index, sequence_bound
from simulations.claims import claim, unconverted

A = (1.25, 2.0, 4.0, 10.0, 100.0)
B_OVER_LEAST = (0.01, 0.25, 1.0, 4.0)
C_OVER_HIGHEST = (0.1, 4.0, 1000.0)
EPSILONS = (0.25, 1.0, 4.0)
LENGTH = 4096
STARTS = ("printed", "corrected", "control")


def cells(quick: bool) -> list[Cell]:
    """One cell; exact, so quick is no different."""
    grid = {"a": list(A), "b_over_least": list(B_OVER_LEAST), "c": list(C_OVER_HIGHEST), "epsilon": list(EPSILONS)}
    return [Cell(grid | {"length": LENGTH})]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> list[dict[str, float]]:
    """Return the highest ratio of what a sequence can reach to the bound, for n_0 as printed and as corrected.

    Only sequences count that keep all hypotheses, a_{n+1} >= 0 included, for ever.
    B is given in units of A^2/4, from which on the bracket 1 - A/n + B/n^2 is never negative; in Lemma 6 it is L/mu of them.
    """
    n = np.arange(1, settings["length"] + 1)
    found = []
    for a in settings["a"]:
        for share in settings["b_over_least"]:
            for c in settings["c"]:
                b = share * a**2 / 4.0
                largest = largest_sequence(a, b, c, 1.0, len(n))
                for epsilon in settings["epsilon"]:
                    starts = {"printed": printed_first_index(a, b, epsilon), "corrected": first_index(a, b, epsilon)}
                    ratios = {
                        name: float((largest / sequence_bound(a, c, 1.0, start, n, epsilon)).max())
                        for name, start in starts.items()
                    }
                    at_once = sequence_bound(a, c, 1.0, 1, n, epsilon)
                    ratios["control"] = float((largest / at_once).max())
                    found.append({"a": a, "b": b, "b_over_least": share, "c": c, "epsilon": epsilon, **ratios})
    return found


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each choice of constants and of n_0: what a sequence can reach over the bound."""
    return [
        {name: value for name, value in found.items() if name not in STARTS}
        | {"start": start, "prediction": 1.0, "estimate": found[start], **EXACT}
        for found in results[0]
        for start in STARTS
    ]


def claims(table: pd.DataFrame) -> list[Claim]:
    """The bound as printed, as printed where Lemma 6 uses it, and as corrected; the control starts at n_0 = 1."""
    used = table[table["b_over_least"] >= 1.0]
    found = []
    for statement, part, start in (
        ("U8/lemma/printed", table, "printed"),
        ("U8/lemma/used", used, "printed"),
        ("U8/lemma/corrected", table, "corrected"),
    ):
        ratios = part.groupby("start")["estimate"]
        both = (exact(largest(ratios.get_group(name)), 1.0) for name in (start, "control"))
        found.append(claim(statement, "all sequences", *both))
    return found


STUDY = unconverted(
    "lemma_14",
    "U8: the lemma on sequences behind the bound, exact",
    cells,
    compute,
    rows,
    claims,
    ("U8/lemma/printed", "U8/lemma/used", "U8/lemma/corrected"),
)
