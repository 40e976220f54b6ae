"""Write the tables of docs/trained_model.md: the success of every arm, and every lead, at every look, from the shipped records.

Run from the top folder:  .venv/bin/python tools/write_trained_model.py
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.harness.sides import study_of
from grpo_theory.harness.study import table_of
from simulations.runs import trained_sizes
from simulations.runs.trained_sizes import AVERAGED, BOTH, ESTIMATORS, FIRST
from tools.write_planner import markdown
from tools.write_planner import with_tables as written

PAGE = Path(__file__).resolve().parents[1] / "docs" / "trained_model.md"
SUCCESS = "<!-- success: written by tools/write_trained_model.py -->", "<!-- end of success -->"
LEADS = "<!-- leads: written by tools/write_trained_model.py -->", "<!-- end of leads -->"
NAMES = {"dr_grpo": "Dr. GRPO", "grpo": "GRPO"}
RUNS = {"usual": "", "later seeds": ", later seeds", "longer": ", longer runs"}


def study() -> pd.DataFrame:
    """Return the table of the study, of which nothing is drawn."""
    read, rng = study_of(trained_sizes), np.random.default_rng(0)
    assert read is not None
    results = [(cell.settings, [read.compute(cell.settings, rng, 0)]) for cell in read.cells(False)]
    return table_of(read.table(results, quick=False))


def success_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of success by arm and number of updates; a star marks a best rate at the end of its grid."""
    own = table[(table["quantity"] == "success") & (table["update"] >= FIRST)]
    looks = [int(update) for update in sorted(own["update"].unique())]
    rows = [["what learns", "arm", *(f"{look} updates" for look in looks)]]
    for (trained, runs, estimator, arm), part in own.groupby(["trained", "runs", "estimator", "arm"], sort=False):
        at = part.set_index("update")
        cells = [f"{at.loc[look, 'estimate']:.2f}{_star(at.loc[look])}" if look in at.index else "" for look in looks]
        rows.append([f"{trained}{RUNS[runs]}", f"{NAMES[estimator]}, {arm}", *cells])
    return markdown(rows)


def leads_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of all leads in points, with both pairs of limits; bold ones exclude 0 for all leads at once."""
    rows = [["what learns", "seeds", "first less second", "updates", "lead", "all at once", "other sign"]]
    rows[0] += [NAMES[name] for name in ESTIMATORS]
    leads = table[table["quantity"] == "lead"]
    for (trained, runs, first, second, update), part in leads.groupby(
        ["trained", "runs", "first", "second", "update"], sort=False
    ):
        by = part.set_index("estimator")
        whole = by.loc[BOTH if BOTH in by.index else ESTIMATORS[0]]
        pair = f"**planned:** {first} less {second}" if whole["planned"] else f"{first} less {second}"
        seeds = int(whole["replications"])
        cells = [f"{trained}{RUNS[runs]}", f"{seeds}", pair, f"{update:.0f}", _lead(whole)]
        cells += [_limits(whole, "_at_once"), f"{seeds * whole['other_sign']:.0f} of {seeds}"]
        rows.append(cells + [_lead(by.loc[name]) if len(by) == len(AVERAGED) else "" for name in ESTIMATORS])
    return markdown(rows)


def _lead(row: pd.Series) -> str:
    """Return a lead with its 95% limits. It is bold if limits for all leads exclude 0, with a star for a rate at an end."""
    text = f"{_points(row['estimate'])} ({_limits(row)})"
    return (f"**{text}**" if row["low_at_once"] * row["high_at_once"] > 0.0 else text) + _star(row)


def _limits(row: pd.Series, which: str = "") -> str:
    return f"{_points(row[f'low{which}'])} to {_points(row[f'high{which}'])}"


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}".replace("-0.0", "0.0")


def _star(row: pd.Series) -> str:
    return "\\*" if row["at_end"] else ""


def with_tables(page: str, table: pd.DataFrame) -> str:
    """Return the page with its two tables as a table of the study has them."""
    page = written(page, success_table(table) + "\n", SUCCESS)
    return written(page, leads_table(table) + "\n", LEADS)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), study()), encoding="utf-8")
