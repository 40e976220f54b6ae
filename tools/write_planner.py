"""Bring the planner's regret and coverage, and the reach of twins, from a full run into the repository.

It writes docs/planner.csv, docs/heavy_tails.csv, docs/advice_regret.csv, docs/planned_run.csv, docs/planned_graded_run.csv,
docs/twin.csv, docs/trained_advice.csv and docs/trained_twin.csv, and the tables of the pages of the planner and of twins.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_planner.py [results]
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.harness.store import read_table
from simulations.plan.planned_group_size import POINT
from simulations.plan.run_regret import evidence_by_arm, spread_of_logs

TOP = Path(__file__).resolve().parents[1]


def marks(name: str) -> tuple[str, str]:
    """Return what stands in front of a part of a page that is written here, and behind it."""
    return f"<!-- {name}: written by tools/write_planner.py -->", f"<!-- end of {name} -->"


PLANNER, TAILS, RUNS, TOTAL = marks("planner"), marks("heavy tails"), marks("step through runs"), marks("total")
TWIN, TRAINED = marks("reach"), marks("trained model")
SAMPLED = ["estimate", "standard_error", "replications"]
LIMITS = [*SAMPLED, "low", "high", "other_sign", "at_end"]
TOTAL_COLUMNS = ["start", "estimator", "each", "quantity", "world", "log", "group_size", "arm", "against", *LIMITS]
TRAINED_COLUMNS = ["trained", "asked", "estimator", "updates", "place", "quantity", "arm", "against", "size"]
TAIL_COLUMNS = ["part", "law", "prompts", "responses", "quantity", "estimate", "plugged_in", "replications"]
KEPT = {
    "planner": ("planned_group_size", ["part", "problem", "prompts", "size", "quantity", "best", "default", *SAMPLED], 4),
    "heavy_tails": ("plan_coverage", TAIL_COLUMNS, 4),
    "advice_regret": (
        "advice_regret",
        ["problem", "estimator", "updates", "quantity", "arm", "against", "size", "share", *LIMITS],
        4,
    ),
    "planned_run": ("planned_run", TOTAL_COLUMNS, 5),
    "planned_graded_run": ("planned_graded_run", TOTAL_COLUMNS, 5),
    "twin": ("twin_reach", ["problem", "start", "size", "arm", "ahead", "quantity", "prediction", *SAMPLED], 4),
    "trained_advice": ("advice_on_trained_model", [*TRAINED_COLUMNS, "estimate", "low", "high"], 5),
    "trained_twin": ("twin_on_trained_model", ["ahead", "arm", "quantity", *SAMPLED], 5),
}
"""Of each file of docs/: the study, its columns that stay in the repository, and how many digits."""
ALWAYS = (2, 4, 8, 16, 64)
PILOTS = ((32, 8), (128, 8), (512, 8), (2048, 8), (512, 4), (512, 16))
COVERED = {"best size": "best size in the set", "risk": "loss below its limit", "loss": "loss at 16"}
COVERED |= {name: name for name in ("c1", "c2", "c3")}


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
    elif columns is not TOTAL_COLUMNS:
        table = table[table["arm"] != "control"]
    if name == "advice_regret":  # without the sizes among each other
        table = table[(table["quantity"] != "lost") | (table["against"] == "best") | (table["arm"] == "planned")]
    return table[columns].round(digits)


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
        covered = [f"{float(point[quantity, name]):.1%}" for quantity in (*COVERED, "enough")]
        holds.append([name, *covered])
    number = int(kept[kept["part"] == "point"]["replications"].max())
    text = (
        f"The next table is from {POINT[0]} prompts of {POINT[1]} and {number:,} pilots per problem. It shows how often a "
        'statement at 95% holds. "Sure" is the share of pilots in which the planner is sure that its recommendation loses no '
        "more than 5%."
    )
    return f"{markdown(regret)}\n\n{text}\n\n{markdown(holds)}\n"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _points(estimate: float, error: float) -> str:
    """Return a difference of success in points, with its standard error."""
    return f"{100.0 * estimate + 0.0:.1f} ({100.0 * error:.1f})"


def markdown(rows: list[list[str]]) -> str:
    """Return a Markdown table of rows, of which the first is its head."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def tails_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of how often the planner's limits hold, and Student's, and how often it warns."""
    shown = ("c1", "c2", "c3", "loss")
    rows = [["lengths", "prompts", "responses", "pilots", "c1", "c2", "c3", "loss at 16", "warned"]]
    for (law, prompts, responses), part in kept.groupby(["law", "prompts", "responses"], sort=False):
        by = part.set_index("quantity")
        cells = [f"{by.loc[name, 'estimate']:.0%} ({by.loc[name, 'plugged_in']:.0%})" for name in shown]
        pilots = f"{int(part['replications'].max()):,}"
        rows.append([str(law), str(prompts), str(responses), pilots, *cells, f"{by.loc['warned', 'estimate']:.0%}"])
    return markdown(rows) + "\n"


def total_table(*kept: pd.DataFrame) -> str:
    """Return a Markdown table of the success, in points, that the size recommended for a run loses, and one size for all."""
    rows = [["start", "estimator", "responses per prompt", "recommended", "loses", *(f"always {size}" for size in ALWAYS)]]
    for table in kept:
        logs = spread_of_logs(table)
        for key, cell in table.groupby(["start", "estimator", "each"], sort=False):
            found = evidence_by_arm(cell, logs)
            told = cell[cell["quantity"] == "told"]["estimate"].value_counts().index  # the usual size first
            arms = ("planned", *(f"always {size}" for size in ALWAYS))
            losses = [_points(found[arm, "best"].estimate, found[arm, "best"].standard_error) for arm in arms]
            rows.append([*map(str, key), " or ".join(f"{size:.0f}" for size in told), *losses])
    return markdown(rows) + "\n"


def runs_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the points of success that the size recommended for a step, and habits, lose in whole runs."""
    habits = ("planned", *(f"always {size}" for size in ALWAYS[:-1]))
    lost = kept[(kept["quantity"] == "lost") & (kept["against"] == "best") & kept["arm"].isin(habits)]
    cells = lost.assign(points=100.0 * lost["estimate"]).groupby(["estimator", "updates", "arm"])["points"]
    rows = [["estimator", "updates", "planned", *habits[1:]]]
    for estimator, updates in lost[["estimator", "updates"]].drop_duplicates().sort_values(["estimator", "updates"]).values:
        told = (cells.agg(["mean", "min", "max"]).loc[estimator, updates, arm] for arm in habits)
        losses = (f"{one['mean'] + 0.0:.1f} ({one['min'] + 0.0:.1f} to {one['max'] + 0.0:.1f})" for one in told)
        rows.append([str(estimator), f"{updates:.0f}", *losses])
    return markdown(rows) + "\n"


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


def trained_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of SmolLM2: what recommended sizes lose, of a step's efficiency and of a run's success."""
    rows = [["trained", "estimator", "step: loses", "with permuted rewards", "always 16"]]
    rows[0] += ["run of 96 updates: loses", "always 4", "always 64"]
    for key, part in kept.groupby(["trained", "estimator"], sort=False):
        step = part[part["quantity"] == "efficiency lost"].groupby("arm")["estimate"].agg(["min", "max"])
        ends = (f"{step.loc[arm, 'min']:.0%} to {step.loc[arm, 'max']:.0%}" for arm in ("planned", "permuted", "always 16"))
        run = part[(part["quantity"] == "lost") & (part["updates"] == 96) & (part["against"] == "best")].set_index("arm")
        rows.append([*map(str, key), *ends, *(_with_limits(run.loc[arm]) for arm in ("planned", "always 4", "always 64"))])
    return markdown(rows) + "\n"


def _with_limits(row: pd.Series) -> str:
    """Return a loss in points of success with its limits, or 0 where a size is compared with itself."""
    values = [100.0 * float(row[name]) for name in ("low", "estimate", "high")]
    low, middle, high = (round(value) for value in values)
    return "0" if not any(values) else f"{middle} ({low} to {high})"


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
        ("planner.md", PLANNER, planner_tables(kept["planner"])),
        ("planner.md", TAILS, tails_table(kept["heavy_tails"])),
        ("planner.md", TOTAL, total_table(kept["planned_run"], kept["planned_graded_run"])),
        ("planner.md", TRAINED, trained_table(kept["trained_advice"])),
        ("planner.md", RUNS, runs_table(kept["advice_regret"])),
        ("twin.md", TRAINED, trained_twin_table(kept["trained_twin"])),
        ("twin.md", TWIN, twin_table(kept["twin"])),
    )
    for name, between, tables in parts:
        page = TOP / "docs" / name
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables, between), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
