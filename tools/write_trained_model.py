"""Write the tables of docs/trained_model.md from the shipped records: what adapters reach, and leads that a reader acts on.

Run from the top folder:  .venv/bin/python tools/write_trained_model.py
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.harness.study import study_of, table_of
from simulations.runs import trained_sizes
from simulations.runs.trained_sizes import BOTH, ESTIMATORS, USUAL
from tools.write_planner import markdown
from tools.write_planner import with_tables as written

PAGE = Path(__file__).resolve().parents[1] / "docs" / "trained_model.md"
SUCCESS = "<!-- success: written by tools/write_trained_model.py -->", "<!-- end of success -->"
LEADS = "<!-- leads: written by tools/write_trained_model.py -->", "<!-- end of leads -->"
NAMES = {"dr_grpo": "Dr. GRPO", "grpo": "GRPO"}
LOOKS = (12, 96, 384)
"""The numbers of updates of which the page has leads; the table of the study has all."""


def study() -> pd.DataFrame:
    """Return the table of the study, of which nothing is drawn."""
    read, rng = study_of(trained_sizes), np.random.default_rng(0)
    assert read is not None
    results = [(cell.settings, [read.compute(cell.settings, rng, 0)]) for cell in read.cells(False)]
    return table_of(read.table(results, quick=False))


def success_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of the success of adapters by group size, on training and held-out questions."""
    own = table[(table["trained"] == "adapters") & (table["runs"] == "usual") & table["group_size"].notna()]
    kept = own[own["quantity"].isin(["success", "held out"]) & own["update"].isin([0, USUAL])]
    wide = kept.pivot(index=["update", "group_size"], columns=["quantity", "estimator"], values="estimate")
    quantities = {"success": "", "held out": ", held out"}
    rows = [["groups of", *(f"{NAMES[name]}{which}" for which in quantities.values() for name in ESTIMATORS)]]
    for (update, size), values in wide.drop(index=wide.loc[[0]].index[1:]).iterrows():
        cells = [f"{values[quantity, name]:.2f}" for quantity in quantities for name in ESTIMATORS]
        rows.append([f"{size:.0f}" if update else "before training", *cells])
    return markdown(rows)


def leads_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of leads of adapters in points, by number of updates; bold ones exclude 0 for all leads at once."""
    rows = [["first less second", *(f"{look} updates" for look in LOOKS)]]
    leads = table[(table["quantity"] == "lead") & (table["trained"] == "adapters")]
    kept = leads["runs"].eq("usual") | (leads["runs"].eq("longer") & leads["second"].eq("groups of 64"))
    for (runs, first, second), part in leads[kept].groupby(["runs", "first", "second"], sort=False):
        if first not in ("GRPO, groups of 2", "clip from above", "ratio, no clip"):
            by = part[part["estimator"] == (BOTH if BOTH in set(part["estimator"]) else ESTIMATORS[0])].set_index("update")
            cells = [_lead(by.loc[look]) if look in by.index else "" for look in LOOKS]
            longer = ", longer runs" if runs == "longer" else ""
            rows.append([f"{first} less {second}{longer}", *cells])
    return markdown(rows)


def _lead(row: pd.Series) -> str:
    """Return a lead with its 95% limits. It is bold if limits for all leads exclude 0, with a star for a rate at an end."""
    text = f"{_points(row['estimate'])} ({_points(row['low'])} to {_points(row['high'])})"
    text = f"**{text}**" if row["low_at_once"] * row["high_at_once"] > 0.0 else text
    return f"{text}{' (planned)' if row['planned'] else ''}" + ("\\*" if row["at_end"] else "")


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}".replace("-0.0", "0.0")


def with_tables(page: str, table: pd.DataFrame) -> str:
    """Return the page with its two tables as a table of the study has them."""
    page = written(page, success_table(table) + "\n", SUCCESS)
    return written(page, leads_table(table) + "\n", LEADS)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), study()), encoding="utf-8")
