"""Bring the planner's regret and coverage from a full run into the repository: docs/planner.csv, and the tables of its page.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_planner.py [results]
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulations.harness.store import read_table
from simulations.plan.planned_group_size import POINT, STUDY

TOP = Path(__file__).resolve().parents[1]
COLUMNS = ["part", "problem", "prompts", "size", "quantity", "best", "default", "estimate", "standard_error", "replications"]
BEGIN, END = "<!-- planner: written by tools/write_planner.py -->", "<!-- end of planner -->"
PILOTS = ((32, 8), (128, 8), (512, 8), (2048, 8), (512, 4), (512, 16))
COVERED = {
    "best size": "best size in the set",
    "risk": "loss below its limit",
    "loss": "loss at 16",
    "c1": "c1",
    "c2": "c2",
    "c3": "c3",
}


def kept_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study's table stays in the repository."""
    answered = table[(table["arm"] == "planned") & (table["quantity"] != "answered")]
    return answered[COLUMNS].round(4)


def planner_tables(kept: pd.DataFrame) -> str:
    """Return two Markdown tables: regret by pilot, and at the point how often sets and limits hold."""
    design = kept[kept["part"] == "design"].set_index(["quantity", "problem", "prompts", "size"])["estimate"]
    point = kept[kept["part"] == "point"].set_index(["quantity", "problem"])["estimate"]
    pilots = [f"{prompts:,} of {size}" for prompts, size in PILOTS]
    regret = [["regret", "best size", "always 8", *pilots]]
    holds = [["holds", *COVERED.values(), "sure"]]
    for name in kept["problem"].unique():
        facts = kept[kept["problem"] == name].iloc[0]
        lost = [_percent(float(design["regret", name, *pilot])) for pilot in PILOTS]
        regret.append([name, str(facts["best"]), _percent(float(facts["default"])), *lost])
        covered = [f"{100.0 * float(point[quantity, name]):.1f}%" for quantity in (*COVERED, "enough")]
        holds.append([name, *covered])
    number = int(kept[kept["part"] == "point"]["replications"].max())
    text = (
        f"How often what is said at 95% holds, from {POINT[0]} prompts of {POINT[1]}, {number:,} pilots a problem; and "
        "in how many the planner is sure that its recommendation loses no more than 5%:"
    )
    return f"{_markdown(regret)}\n\n{text}\n\n{_markdown(holds)}\n"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f}%" if share < 0.1 else f"{100.0 * share:.0f}%"


def _markdown(rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def with_tables(page: str, tables: str) -> str:
    """Return the page with other tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def main(results: Path) -> None:
    """Write both files, unless the table is of a quick run."""
    table, facts = read_table(results, STUDY.name)
    if facts["quick"]:
        raise SystemExit(f"the table must be of a full run, and that in {results} is of a quick one")
    place, page = TOP / "docs" / "planner.csv", TOP / "docs" / "planner.md"
    kept_rows(table).to_csv(place, index=False)
    page.write_text(with_tables(page.read_text(encoding="utf-8"), planner_tables(pd.read_csv(place))), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
