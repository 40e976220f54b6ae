"""Bring the planner's regret and coverage from a full run into the repository.

It writes docs/planner.csv, docs/heavy_tails.csv, docs/planned_run.csv, and the tables of the planner's page.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_planner.py [results]
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.harness.store import read_table
from simulations.plan.planned_group_size import POINT
from simulations.plan.planned_run import lost

TOP = Path(__file__).resolve().parents[1]
COLUMNS = ["part", "problem", "prompts", "size", "quantity", "best", "default", "estimate", "standard_error", "replications"]
PLANNER = "<!-- planner: written by tools/write_planner.py -->", "<!-- end of planner -->"
TAILS = "<!-- heavy tails: written by tools/write_planner.py -->", "<!-- end of heavy tails -->"
RUNS = "<!-- whole runs: written by tools/write_planner.py -->", "<!-- end of whole runs -->"
"""The marks of the parts of the page."""
RUN_COLUMNS = ["start", "estimator", "each", "world", "told", "worst", "group_size", "estimate", "standard_error"]
ALWAYS = (2, 4, 8, 16, 64)
TAIL_COLUMNS = ["part", "law", "prompts", "responses", "quantity", "estimate", "plugged_in", "replications"]
CSV = ("planner.csv", "heavy_tails.csv", "planned_run.csv")
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


def kept_tails(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the coverage study's pilots with gradients stays in the repository: the longer of two runs of a setting."""
    tails = table[table["part"].str.startswith("tails")].sort_values("replications", ascending=False, kind="stable")
    kept = tails.drop_duplicates(["law", "prompts", "responses", "quantity"]).sort_index()
    return kept[TAIL_COLUMNS].round(4)


def tails_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of how often the planner's limits hold, and Student's, and how often it warns."""
    shown = ("c1", "c2", "c3", "loss")
    rows = [["lengths", "prompts", "responses", "pilots", "c1", "c2", "c3", "loss at 16", "warned"]]
    for (law, prompts, responses), part in kept.groupby(["law", "prompts", "responses"], sort=False):
        by = part.set_index("quantity")
        cells = [f"{_whole(by.loc[name, 'estimate'])} ({_whole(by.loc[name, 'plugged_in'])})" for name in shown]
        pilots = f"{int(part['replications'].max()):,}"
        rows.append([str(law), str(prompts), str(responses), pilots, *cells, _whole(by.loc["warned", "estimate"])])
    return _markdown(rows) + "\n"


def runs_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the success, in points, that the planner's group size for a run loses, and one size for all."""
    rows = [["start", "estimator", "responses a prompt", "recommended", "loses", *(f"always {size}" for size in ALWAYS)]]
    for (start, estimator, each), cell in kept.groupby(["start", "estimator", "each"], sort=False):
        told = " or ".join(f"{size}" for size in sorted(cell["told"].unique()))
        losses = [f"{100.0 * lost(cell, by)[0]:.1f}" for by in ("told", *ALWAYS)]
        rows.append([str(start), str(estimator), str(each), told, *losses])
    return _markdown(rows) + "\n"


def _whole(share: object) -> str:
    return f"{100.0 * float(str(share)):.0f}%"


def with_tables(page: str, tables: str, marks: tuple[str, str] = PLANNER) -> str:
    """Return the page with other tables between two of its marks."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def main(results: Path) -> None:
    """Write the files, unless a table is of a quick run."""
    read = [read_table(results, name) for name in ("planned_group_size", "plan_coverage", "planned_run")]
    if any(facts["quick"] for _, facts in read):
        raise SystemExit(f"the tables must be of a full run, and one in {results} is of a quick one")
    table, covered, runs = (one for one, _ in read)
    place, tails, whole, page = (TOP / "docs" / f"{name}" for name in (*CSV, "planner.md"))
    runs[RUN_COLUMNS].round(5).to_csv(whole, index=False)
    kept_rows(table).to_csv(place, index=False)
    kept_tails(covered).to_csv(tails, index=False)
    text = with_tables(page.read_text(encoding="utf-8"), planner_tables(pd.read_csv(place)))
    text = with_tables(text, tails_table(pd.read_csv(tails)), TAILS)
    page.write_text(with_tables(text, runs_table(pd.read_csv(whole)), RUNS), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
