"""The tables of the report that are read off a study's table, and not off the verdicts."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from grpo_theory.harness.discovery import studies
from grpo_theory.harness.store import read_run, read_table
from paper_figures.harness.captions import listed
from paper_figures.harness.style import ESTIMATORS, TRAINING
from simulations.claims import CATALOGUE, decided_by


def group_sizes(results: Path) -> pd.DataFrame:
    """Return the constants of the error law and the group size of least error, one row for each problem."""
    table, _ = read_table(results, "error_law")
    law = table.groupby("problem", sort=False)[["c1", "c2", "c3", "optimum", "paper_optimum"]].first().reset_index()
    return law.rename(columns={"optimum": "G* exact, 1 + sqrt(c3/c1)", "paper_optimum": "G* printed, sqrt(c3/c1)"})


def who_wins(results: Path) -> pd.DataFrame:
    """Return errors relative to the oracle's, one row for each problem and group size."""
    table, _ = read_table(results, "baselines")
    single = table[table["estimator"].isin(list(ESTIMATORS))]
    wide = single.pivot_table(index=["problem", "group_size"], columns="estimator", values="estimate", sort=False)
    relative = wide.div(wide["oracle"], axis=0)
    relative["lowest"] = wide.idxmin(axis=1)
    facts = table.groupby("problem")[["value", "correlation_mean", "vanilla_wins", "break_even"]].first()
    names = {
        "value": "mean value",
        "correlation_mean": "mean |corr(||W||^2, Z)|",
        "vanilla_wins": "share of prompts where 0 beats V",
        "break_even": "G above which leave-one-out beats 0",
    }
    return relative.reset_index().join(facts.rename(columns=names), on="problem")


def coverage_at_points(claims: pd.DataFrame) -> pd.DataFrame:
    """Return the coverage, or the power, with its simultaneous limits, one row for each interval and setting."""
    misses = claims["kind"] == "upper bound"
    shares = {"covers": claims["estimate"].where(~misses, 1.0 - claims["estimate"])}
    shares |= {
        "low": claims["low"].where(~misses, 1.0 - claims["high"]),
        "high": claims["high"].where(~misses, 1.0 - claims["low"]),
    }
    shown = claims[["id", "statement", "problem"]].rename(columns={"problem": "setting"})
    return shown.assign(**shares, narrowed=claims["control"], verdict=claims["verdict"])


def about_runs(results: Path) -> str:
    """Say of which runs `coverage_of_runs` is."""
    design = _coverage_of_runs(results)
    problems = listed(f"\u201c{TRAINING[str(name)]}\u201d" for name in design["problem"].unique())
    sizes = design[["batch_size", "group_size"]].drop_duplicates()
    batches = listed(f"B = {row.batch_size} with G = {row.group_size}" for row in sizes.itertuples())
    return (
        f"Runs start {listed(map('{:g}'.format, design['start'].unique()))} from the maximiser. Each cell has the least and the "
        f"median coverage over problems ({problems}), sizes ({batches}) and components, by steps and schedule."
    )


def coverage_of_runs(results: Path) -> pd.DataFrame:
    """Return least and median coverage of the intervals from one training run, by steps and schedule."""
    design = _coverage_of_runs(results)
    grouped = design.groupby(["interval", "target", "schedule", "steps"], sort=False)["estimate"]
    text = grouped.agg(lambda shares: f"{shares.min():.3f}, {shares.median():.3f}")
    wide = text.unstack(["schedule", "steps"], fill_value="")
    wide.columns = [f"{schedule}, n = {steps}" for schedule, steps in wide.columns]
    return wide.reset_index()


def _coverage_of_runs(results: Path) -> pd.DataFrame:
    table, _ = read_table(results, "coverage_runs")
    return table[(table["part"] == "design") & (table["measure"] == "coverage")]


def undecided() -> pd.DataFrame:
    """Return the statements of the catalogue that no study decides, and why."""
    deciders = decided_by(studies().values())
    found = [one for one in CATALOGUE.values() if not deciders.get(one.id)]
    return pd.DataFrame([(one.id, one.text, one.source, one.open) for one in found], columns=["id", "statement", "source", "why"])


def how_made(results: Path, names: Sequence[str]) -> pd.DataFrame:
    """Return settings, replications, seed and time of each study."""
    rows = []
    for name in names:
        table, facts = read_table(results, name)
        seconds = read_run(results, name).get("processor seconds", "not known")
        sizes = {column: table[column].dropna() for column in ("batch_size", "group_size") if column in table}
        settings = {column: sorted({int(size) for size in values}) for column, values in sizes.items()}
        counts = sorted(set(table["replications"])) if "replications" in table else ["exact"]
        text = ", ".join(map(str, counts))
        rows.append((name, studies()[name].title, json.dumps(settings), text, facts["seed"], seconds))
    columns = ["study", "title", "settings", "replications a cell", "seed", "processor seconds"]
    return pd.DataFrame(rows, columns=columns)
