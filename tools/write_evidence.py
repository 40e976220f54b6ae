"""Bring the evidence of a full run into the repository: docs/verdicts.csv, docs/coverage.csv, and the tables of pages.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_evidence.py [results]
"""

import re
import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.making.evidence import coverage_table, theorem_table
from grpo_theory.evidence import PARTS
from grpo_theory.harness.store import read_table, read_verdicts
from grpo_theory.page.digest import COLUMNS, DIGITS, evidence
from paper_figures.content import front
from paper_figures.content.coverage_advice import advice
from simulations.collection import catalogue, studies

TOP = Path(__file__).resolve().parents[1]
LINE = re.compile(r"^\*\*Verdicts\.\*\* .*$", flags=re.MULTILINE)
"""The line of a finding with the verdicts of the claims that it names."""
FRONT = re.compile(r"(<!-- table: (?P<which>\w+) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
"""Where a table of the three questions stands: that of the README, or that of a question."""
COVERAGE = re.compile(r"(<!-- coverages -->\n).*?(<!-- end of coverages -->)", flags=re.DOTALL)
"""Where the table of coverages stands."""
THEOREMS = re.compile(r"(<!-- theorems -->\n).*?(<!-- end of theorems -->)", flags=re.DOTALL)
"""Where the table of all printed statements stands."""
PLANNED = {
    "uniform share": "estimate_uniform_shares",
    "uniform share, doubled": "estimate_uniform_shares",
    "step": "weigh_prompts",
    "weighted rate": "weigh_prompts",
    "hard prompts": "bound_success_rates",
    "hard weight": "weigh_prompts",
    "learning rate": "learning_rate_factor",
}
"""Which function returns the interval of each quantity of the study of plans."""


def statements() -> pd.DataFrame:
    """Return the statements that studies judge, as a table."""
    columns = ("id", "whose", "source", "kind", "text", "assumptions", "formula", "margin", "because")
    rows = []
    for one in catalogue().values():
        if one.kind != PARTS:
            margin = (one.margin.value, one.margin.because) if one.margin else ("", "")
            rows.append((one.id, one.whose, one.source, one.kind, one.text, one.assumptions, one.formula, *margin))
    return pd.DataFrame(rows, columns=list(columns))


def with_theorems(page: str, verdicts: pd.DataFrame) -> str:
    """Return a page with the table of what papers print, as the verdicts have it."""
    return THEOREMS.sub(lambda found: f"{found[1]}\n{theorem_table(verdicts)}\n{found[2]}", page)


def coverages(results: Path) -> pd.DataFrame:
    """Return one row for each interval and design: in how many cells it was tried, and its least and median coverage there."""
    judged = advice(read_table(results, "coverage")[0])
    rollouts = judged.assign(design="success " + judged["success"] + ", B = " + judged["B"].astype(str))
    runs = _cells(read_table(results, "coverage_runs")[0].query("part == 'design'"), "{steps} steps")
    pairs = _cells(read_table(results, "coverage_pairs")[0], "{from} to {pairs} pairs")
    tried = read_table(results, "plan_coverage")[0].query("part == 'design'").rename(columns={"quantity": "target"})
    designs = [f"{row.prompts:,} prompts, {row.replications} pilots for each law and group size" for row in tried.itertuples()]
    plans = _over_cells(tried.assign(interval=[PLANNED[target] for target in tried["target"]], design=designs))
    columns = ["interval", "target", "design", "cells", "least", "median"]
    parts = (rollouts, runs, pairs, plans)
    return pd.concat([part[columns] for part in parts], ignore_index=True).round(4)


def _cells(table: pd.DataFrame, design: str) -> pd.DataFrame:
    """Return least and median over the cells of a table, of the worst component in each."""
    covered = table[(table["measure"] == "coverage") & ~table["interval"].isin(["narrowed", "watched"])]
    covered = covered.assign(design=[design.format_map(row) for row in covered.to_dict("records")])
    settings = [name for name in ("problem", "schedule", "start") if name in covered]
    return _over_cells(covered.groupby(["interval", "target", "design", *settings], sort=False)["estimate"].min().reset_index())


def _over_cells(table: pd.DataFrame) -> pd.DataFrame:
    cells = table.groupby(["interval", "target", "design"], sort=False)["estimate"]
    return cells.agg(cells="size", least="min", median="median").reset_index()


def main(results: Path) -> None:
    """Write the tables and the pages, unless the verdicts are of a quick run or lack a study."""
    found = read_verdicts(results, studies())
    missing = [name for name in studies() if name not in found.studies]
    if found.quick or missing:
        lack = "are of a quick run" if found.quick else f"lack {', '.join(missing)}"
        raise SystemExit(f"verdicts must be of a full run of all studies, and those in {results} {lack}")
    verdicts = found.claims[COLUMNS]
    statements().to_csv(TOP / "docs" / "statements.csv", index=False)
    verdicts.to_csv(TOP / "docs" / "verdicts.csv", index=False, float_format=f"%.{DIGITS}g")
    covered = coverages(results)
    covered.to_csv(TOP / "docs" / "coverage.csv", index=False)
    lines = list(front.lines({name: read_table(results, name)[0] for name in front.TABLES}))
    kept = pd.read_csv(TOP / "docs" / "verdicts.csv", keep_default_na=False)

    def front_table(found: re.Match[str]) -> str:
        table = front.front_table(lines) if found["which"] == "front" else front.question_table(lines, found["which"])
        return f"{found[1]}\n{table}\n{found[3]}"

    def evidence_line(found: re.Match[str]) -> str:
        return evidence(kept, re.findall("`(.+?)`", found[0]))

    for path in (TOP / "README.md", *sorted((TOP / "docs").glob("*.md")), *sorted((TOP / "docs" / "findings").glob("*.md"))):
        page = path.read_text(encoding="utf-8")
        written = with_theorems(LINE.sub(evidence_line, FRONT.sub(front_table, page)), kept)
        written = COVERAGE.sub(lambda found: f"{found[1]}{coverage_table(covered)}\n{found[2]}", written)
        if written != page:
            path.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
