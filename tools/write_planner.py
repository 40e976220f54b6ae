"""Bring the planner's regret and coverage, and the reach of twins, from a full run into the repository.

It writes docs/planner.csv, docs/heavy_tails.csv, docs/advice_regret.csv, docs/twin.csv, docs/long_runs.csv, docs/long_clips.csv,
docs/trained_advice.csv and docs/trained_twin.csv, and the tables of the pages that show them.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_planner.py [results]
"""

import sys
from functools import partial
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.harness.store import read_table

TOP = Path(__file__).resolve().parents[1]


def marks(name: str) -> tuple[str, str]:
    """Return what stands in front of a part of a page that is written here, and behind it."""
    return f"<!-- {name}: written by tools/write_planner.py -->", f"<!-- end of {name} -->"


PLANNER, TWIN, TRAINED = marks("planner"), marks("reach"), marks("trained model")
LONG, CLIPS = marks("long runs"), marks("clips")
SAMPLED = ["estimate", "standard_error", "replications"]
LIMITS = [*SAMPLED, "low", "high", "other_sign", "at_end"]
TRAINED_COLUMNS = ["trained", "estimator", "place", "quantity", "arm", "against", "size", "estimate"]
REGRET_COLUMNS = ["problem", "estimator", "updates", "quantity", "arm", "against", "size", "share", *LIMITS]
TAIL_COLUMNS = ["part", "law", "prompts", "responses", "quantity", "estimate", "plugged_in", "replications"]
KEPT = {
    "planner": ("planned_group_size", ["part", "problem", "prompts", "size", "quantity", "best", "default", *SAMPLED], 4),
    "heavy_tails": ("plan_coverage", TAIL_COLUMNS, 4),
    "advice_regret": ("advice_regret", REGRET_COLUMNS, 4),
    "twin": ("twin_reach", ["problem", "start", "size", "arm", "ahead", "quantity", "prediction", *SAMPLED], 4),
    "long_runs": ("long_runs", ["kind", "estimator", "quantity", "group_size", "estimate", "low", "high"], 5),
    "long_clips": ("long_clips", ["optimiser", "budget", "clip", "quantity", "estimate", "low", "high"], 5),
    "trained_advice": ("advice_on_trained_model", TRAINED_COLUMNS, 5),
    "trained_twin": ("twin_on_trained_model", ["ahead", "arm", "quantity", *SAMPLED], 5),
}
"""Of each file of docs/: the study, its columns that stay in the repository, and how many digits."""
PILOTS = ((32, 8), (128, 8), (512, 8), (2048, 8), (512, 4), (512, 16))


def kept_rows(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return what of a study's table stays in the repository: answers of the planner, and all but controls."""
    _, columns, digits = KEPT[name]
    table = table.dropna(subset="quantity")  # rows of statements have none
    if name == "planner":
        answered = table[(table["arm"] == "planned") & (table["quantity"] != "answered")]
        return answered[columns].round(digits).astype({"best": int})
    if name == "heavy_tails":  # the longer of two runs of a setting
        tails = table[table["part"].str.startswith("tails")].sort_values("replications", ascending=False, kind="stable")
        table = tails.drop_duplicates(["law", "prompts", "responses", "quantity"]).sort_index()
    elif name in ("long_runs", "long_clips"):
        whole = {"group_size": int} if name == "long_runs" else {"budget": int}
        return table.loc[table["quantity"] == "lost", columns].round(digits).astype(whole)
    else:
        table = table[table["arm"] != "control"]
    if name == "advice_regret":  # without the sizes among each other
        table = table[(table["quantity"] != "lost") | (table["against"] == "best") | (table["arm"] == "planned")]
    return table[columns].round(digits)


def planner_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of regret by pilot."""
    design = kept[kept["part"] == "design"].set_index(["quantity", "problem", "prompts", "size"])["estimate"]
    rows = [["regret", "best size", "always 8", *(f"{prompts:,} of {size}" for prompts, size in PILOTS)]]
    for name in kept["problem"].unique():
        facts = kept[kept["problem"] == name].iloc[0]
        lost = [_percent(float(design["regret", name, *pilot])) for pilot in PILOTS]
        rows.append([name, str(facts["best"]), _percent(float(facts["default"])), *lost])
    return markdown(rows) + "\n"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table of rows, of which the first is its head."""
    head, *body = (f"|{'|'.join(row)}|" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def lost_table(kept: pd.DataFrame, by: list[str], across: str, names: list[str]) -> str:
    """Return a Markdown table of points lost, with half-widths: a row for each of the groups, values of a column across."""
    places = sorted(kept[across].unique())
    rows = [[*names, *(f"{place:,}" for place in places)]]
    for own, part in kept.groupby(by, sort=False):
        points = 100.0 * part.set_index(across)[["estimate", "high"]]
        middle, half = points["estimate"], points["high"] - points["estimate"]
        rows.append([*map(str, own), *(f"{middle[place]:.1f}±{half[place]:.1f}" for place in places)])
    return markdown(rows) + "\n"


long_table = partial(lost_table, by=["kind", "estimator"], across="group_size", names=["world", "advantages"])
clip_table = partial(lost_table, by=["optimiser", "clip"], across="budget", names=["optimiser", "clip"])


def twin_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of how far twins miss the success of the runs, in points, by log and updates ahead."""
    looks = {"": (0, 64, (4, 8, 32)), ", 16 responses per prompt": (0, 16, (8,)), ", log after 32 updates": (32, 64, (8, 32))}
    twins = kept[(kept["quantity"] == "miss") & (kept["arm"] == "twin")]
    misses = twins.set_index(["problem", "start", "size", "ahead"])["estimate"]
    columns = [(f"{ahead} ahead{which}", start, size, ahead) for which, (start, size, own) in looks.items() for ahead in own]
    rows = [["policy", *(name for name, *_ in columns)]]
    for problem in twins["problem"].unique():
        rows.append([problem, *(f"{100.0 * misses[(problem, *place)]:.1f}" for _, *place in columns)])
    return markdown(rows) + "\n"


def trained_twin_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of SmolLM2's success along exact ascent, and how far twins miss it."""
    value = kept.set_index(["quantity", "arm", "ahead"])["estimate"]
    rows = [["updates ahead", "success", "twins miss by"]]
    for ahead in kept["ahead"].unique():
        points = (100.0 * value[name, arm, ahead] for name, arm in (("success", "real"), ("miss", "twin")))
        rows.append([f"{ahead}", *(f"{each:.1f}" for each in points)])
    return markdown(rows) + "\n"


def with_tables(page: str, tables: str, between: tuple[str, str] = PLANNER) -> str:
    """Return the page with other tables between two of its marks."""
    begin, end = between
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def main(results: Path) -> None:
    """Write the files, unless a table is of a quick run."""
    found = {name: read_table(results, study) for name, (study, _, _) in KEPT.items()}
    if any(facts["quick"] for _, facts in found.values()):
        raise SystemExit(f"the tables must be of a full run, and one in {results} is of a quick one")
    kept = {}
    for name, (table, _) in found.items():
        place = TOP / "docs" / f"{name}.csv"
        kept_rows(name, table).to_csv(place, index=False)
        kept[name] = pd.read_csv(place)
    parts = (
        ("planner.md", PLANNER, planner_table(kept["planner"])),
        ("runs.md", LONG, long_table(kept["long_runs"])),
        ("three_questions.md", CLIPS, clip_table(kept["long_clips"])),
        ("twin.md", TRAINED, trained_twin_table(kept["trained_twin"])),
        ("twin.md", TWIN, twin_table(kept["twin"])),
    )
    for name, between, tables in parts:
        page = TOP / "docs" / name
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables, between), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
