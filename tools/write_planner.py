"""Bring the planner's regret and coverage, and the reach of twins, from a full run into the repository.

It writes docs/planner.csv, docs/heavy_tails.csv, docs/advice_regret.csv, docs/planned_run.csv, docs/planned_graded_run.csv,
docs/twin.csv, docs/trained_advice.csv and docs/trained_twin.csv, and the tables of the pages of the planner and of twins.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_planner.py [results]
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from grpo_theory.evidence import Evidence
from grpo_theory.harness.store import read_table
from simulations.plan.planned_group_size import POINT
from simulations.plan.run_regret import evidence_by_arm, spread_of_logs

TOP = Path(__file__).resolve().parents[1]
COLUMNS = ["part", "problem", "prompts", "size", "quantity", "best", "default", "estimate", "standard_error", "replications"]
PLANNER = "<!-- planner: written by tools/write_planner.py -->", "<!-- end of planner -->"
TAILS = "<!-- heavy tails: written by tools/write_planner.py -->", "<!-- end of heavy tails -->"
RUNS = "<!-- whole runs: written by tools/write_planner.py -->", "<!-- end of whole runs -->"
GRADED = "<!-- graded: written by tools/write_planner.py -->", "<!-- end of graded -->"
TOTAL = "<!-- total: written by tools/write_planner.py -->", "<!-- end of total -->"
TWIN = "<!-- reach: written by tools/write_planner.py -->", "<!-- end of reach -->"
TRAINED = "<!-- trained model: written by tools/write_planner.py -->", "<!-- end of trained model -->"
"""The marks of the parts of the pages."""
LIMITS = ["estimate", "standard_error", "replications", "low", "high", "other_sign", "at_end"]
TOTAL_COLUMNS = ["start", "estimator", "each", "quantity", "world", "log", "group_size", "arm", "against", *LIMITS]
TRAINED_COLUMNS = [
    "trained",
    "asked",
    "estimator",
    "updates",
    "place",
    "quantity",
    "arm",
    "against",
    "size",
    "estimate",
    "low",
    "high",
]
TRAINED_TWIN_COLUMNS = ["ahead", "arm", "quantity", "estimate", "standard_error", "replications"]
ALWAYS = (2, 4, 8, 16, 64)
RUN_COLUMNS = ["problem", "estimator", "updates", "quantity", "arm", "against", "size", "share", *LIMITS]
TWIN_COLUMNS = [
    "problem",
    "start",
    "size",
    "arm",
    "ahead",
    "quantity",
    "prediction",
    "estimate",
    "standard_error",
    "replications",
]
TAIL_COLUMNS = ["part", "law", "prompts", "responses", "quantity", "estimate", "plugged_in", "replications"]
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
    return answered[COLUMNS].round(4).astype({"best": int})


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
        f"The next table is from {POINT[0]} prompts of {POINT[1]} and {number:,} pilots per problem. It shows how often a "
        'statement at 95% holds. "Sure" is the share of pilots in which the planner is sure that its recommendation loses no '
        "more than 5%."
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


def kept_total(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study of a run's group size, told from rewards alone, stays in the repository."""
    return table[TOTAL_COLUMNS].round(5)


def total_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the success, in points, that the planner's group size for a run loses, and one size for all."""
    rows = [["start", "estimator", "responses per prompt", "recommended", "loses", "in single kinds", "other sign"]]
    rows[0] += [*(f"always {size}" for size in ALWAYS), "more than always 4", "more than always 16"]
    logs = spread_of_logs(kept)
    for key, cell in kept.groupby(["start", "estimator", "each"], sort=False):
        found = evidence_by_arm(cell, logs)
        asked = cell[cell["quantity"] == "told"]["estimate"]
        own = cell[(cell["arm"] == "planned") & (cell["against"] == "best")]
        pairs = [*((f"always {size}", "best") for size in ALWAYS), ("planned", "always 4"), ("planned", "always 16")]
        spread = [_between(own["estimate"]), f"{100.0 * own['other_sign'].mean():.0f}%"]
        losses = [_with_error(found[pair]) for pair in pairs]
        rows.append([*map(str, key), _sizes(asked), _with_error(found["planned", "best"]), *spread, *losses])
    return _markdown(rows) + "\n"


def _sizes(asked: pd.Series) -> str:
    """Return the sizes that occur, the usual one first, such as "4 or 2"."""
    return " or ".join(f"{size:.0f}" for size in asked.value_counts().index)


def _between(losses: pd.Series) -> str:
    """Return between which points losses lie, such as "-0.1 to 0.7"."""
    low, high = (f"{100.0 * each + 0.0:.1f}" for each in (losses.min(), losses.max()))
    return f"{low} to {high}" if len(losses) > 1 else low


def _with_error(found: Evidence) -> str:
    """Return a loss in points of success, with its standard error."""
    return f"{100.0 * found.estimate + 0.0:.1f} ({100.0 * found.standard_error:.1f})"


def _whole(share: object) -> str:
    return f"{100.0 * float(str(share)):.0f}%"


def kept_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study of whole runs stays in the repository: all but its controls and the sizes among each other."""
    kept = (table["arm"] != "control") & (
        (table["quantity"] != "lost") | (table["against"] == "best") | (table["arm"] == "planned")
    )
    return table[kept][RUN_COLUMNS].round(4)


def runs_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of success at the end, and of what the planner's size and three habits lose to the best."""
    lost = kept[kept["quantity"] == "lost"].set_index(["problem", "estimator", "updates", "against", "arm"]).sort_index()
    success = kept[kept["quantity"] == "success"].set_index(["problem", "estimator", "updates", "arm"])
    recommended = kept[kept["quantity"] == "log2 recommended"].set_index(["problem", "estimator"])["estimate"]
    habits = ("always 4", "always 8", "always 16")
    rows = [["policy", "estimator", "updates", "best size", "its success", "recommended", "planner loses", "other sign"]]
    rows[0] += [*(f"{habit} loses" for habit in habits), "planner loses to always 4", "to always 16"]
    for problem, estimator in kept[["problem", "estimator"]].drop_duplicates().itertuples(index=False):
        for updates in sorted(kept["updates"].dropna().unique()):
            against, best = lost.loc[problem, estimator, updates, "best"], success.loc[problem, estimator, updates, "best"]
            size = f"{2.0 ** float(recommended[problem, estimator]):.1f}"
            planned, *losses = (_points(against.loc[arm]) for arm in ("planned", *habits))
            sign = f"{100.0 * float(against.loc['planned', 'other_sign']):.0f}%"
            losses += [_points(lost.loc[(problem, estimator, updates, habit, "planned")]) for habit in (habits[0], habits[-1])]
            end, name = _percent(float(best["estimate"])), f"{best['size']:.0f}"
            rows.append([str(problem), str(estimator), f"{updates:.0f}", name, end, size, planned, sign, *losses])
    return _markdown(rows) + "\n"


def _points(row: pd.Series) -> str:
    """Return a difference of success in points, with its standard error."""
    estimate, error = (100.0 * float(row[name]) + 0.0 for name in ("estimate", "standard_error"))
    return "0" if error == 0.0 and estimate == 0.0 else f"{estimate:.1f} ({error:.1f})"


def kept_twins(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study of twins stays in the repository: all but its controls."""
    return table[table["arm"] != "control"][TWIN_COLUMNS].round(4)


def twin_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of how far twins miss the success of the runs, in points, by updates ahead."""
    twins = kept[(kept["quantity"] == "miss") & (kept["arm"] == "twin")]
    looks = sorted(twins["ahead"].unique())
    rows = [["policy", "log after", "responses per prompt", *(f"{ahead} ahead" for ahead in looks), "success, then and 32 ahead"]]
    success = kept[(kept["quantity"] == "success") & (kept["arm"] == "real")]
    keys = ["problem", "start", "size"]
    real = success.set_index([*keys, "ahead"])["estimate"]
    for key, part in twins.groupby(keys, sort=False):
        by = part.set_index("ahead")["estimate"]
        ends = " and ".join(f"{100.0 * float(real[(*key, ahead)]):.0f}%" for ahead in (looks[0], looks[-1]))
        rows.append([*map(str, key), *(f"{100.0 * by[ahead]:.1f}" for ahead in looks), ends])
    return _markdown(rows) + "\n"


def kept_trained(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study of advice on the trained model stays in the repository: all but its controls."""
    return table[table["arm"] != "control"][TRAINED_COLUMNS].round(5)


def trained_tables(kept: pd.DataFrame) -> str:
    """Return two Markdown tables of SmolLM2: the efficiency that recommended sizes lose, and the success, with 95% limits."""
    arms = ("planned", "always 4", "always 8", "always 16", "always 64")
    other = "with permuted rewards"
    told = kept[(kept["quantity"] == "recommended") & (kept["arm"] == "planned") & (kept["estimate"] > 0.0)]
    step = [["trained", "estimator", "recommended", "policy", "planner loses", other, *(f"{arm} loses" for arm in arms[1:])]]
    keys = ["trained", "estimator"]
    for (*key, place), part in kept[kept["quantity"] == "efficiency lost"].groupby([*keys, "place"], sort=False):
        asked = told[(told["asked"] == "step") & (told[keys] == key).all(axis=1)]
        by = part.set_index("arm")["estimate"]
        losses = (f"{100.0 * by[arm]:.1f}%" for arm in ("planned", "permuted", *arms[1:]))
        step.append([*map(str, key), _shares(asked), str(place), *losses])
    run = [["trained", "estimator", "updates", "recommended", "planner loses", *(f"{arm} loses" for arm in arms[1:])]]
    run[0].append("planner loses to always 4")
    for (*key, updates), part in kept[kept["asked"] == "run"].groupby([*keys, "updates"], sort=False):
        asked = told[(told["asked"] == "run") & (told[keys] == key).all(axis=1) & (told["updates"] == updates)]
        by = part[part["quantity"] == "lost"].set_index(["arm", "against"])
        losses = [_with_limits(by.loc[arm, "best"]) for arm in arms] + [_with_limits(by.loc["planned", "always 4"])]
        run.append([*map(str, key), f"{updates}", _shares(asked), *losses])
    return f"{_markdown(step)}\n\n{_markdown(run)}\n"


def _shares(asked: pd.DataFrame) -> str:
    """Return the sizes that were recommended, the usual one first, each with its share of the logs."""
    ordered = asked.sort_values("estimate", ascending=False, kind="stable")
    return ", ".join(f"{row.size:.0f} ({100.0 * row.estimate:.0f}%)" for row in ordered.itertuples())


def _with_limits(row: pd.Series) -> str:
    """Return a loss in points of success with its limits, or 0 where a size is compared with itself."""
    values = [100.0 * float(row[name]) for name in ("low", "estimate", "high")]
    low, middle, high = (round(value) for value in values)
    return "0" if not any(values) else f"{middle} ({low} to {high})"


def kept_trained_twin(table: pd.DataFrame) -> pd.DataFrame:
    """Return what of the study of twins of the trained model stays in the repository: all but its controls."""
    return table[table["arm"] != "control"][TRAINED_TWIN_COLUMNS].round(5)


def trained_twin_table(kept: pd.DataFrame) -> str:
    """Return a Markdown table of SmolLM2's success along exact ascent, and what twins and frozen features say of it."""
    value = kept.set_index(["quantity", "arm", "ahead"])["estimate"]
    rows = [["updates ahead", "success", "features of the start", "twins, on average", "twins miss by"]]
    for ahead in kept["ahead"].unique():
        found = [value["success", arm, ahead] for arm in ("real", "features of the start", "twin")]
        shown = [f"{100.0 * each:.1f}%" for each in found]
        rows.append([f"{ahead}", *shown, f"{100.0 * value['miss', 'twin', ahead]:.1f}"])
    return _markdown(rows) + "\n"


def with_tables(page: str, tables: str, marks: tuple[str, str] = PLANNER) -> str:
    """Return the page with other tables between two of its marks."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def main(results: Path) -> None:
    """Write the files, unless a table is of a quick run."""
    names = ("planned_group_size", "plan_coverage", "advice_regret", "planned_run", "planned_graded_run", "twin_reach")
    names += ("advice_on_trained_model", "twin_on_trained_model")
    found = [read_table(results, name) for name in names]
    if any(facts["quick"] for _, facts in found):
        raise SystemExit(f"the tables must be of a full run, and one in {results} is of a quick one")
    keeping = (kept_rows, kept_tails, kept_runs, kept_total, kept_total, kept_twins, kept_trained, kept_trained_twin)
    files = (
        "planner",
        "heavy_tails",
        "advice_regret",
        "planned_run",
        "planned_graded_run",
        "twin",
        "trained_advice",
        "trained_twin",
    )
    places = [TOP / "docs" / f"{name}.csv" for name in files]
    for keep, (table, _), place in zip(keeping, found, places, strict=True):
        keep(table.dropna(subset="quantity")).to_csv(place, index=False)  # rows of statements have none
    planner, tails, runs, total, graded, twins, trained, trained_twins = (pd.read_csv(place) for place in places)
    page = TOP / "docs" / "planner.md"
    text = with_tables(page.read_text(encoding="utf-8"), planner_tables(planner))
    text = with_tables(text, tails_table(tails), TAILS)
    text = with_tables(text, total_table(total), TOTAL)
    text = with_tables(text, total_table(graded), GRADED)
    text = with_tables(text, trained_tables(trained), TRAINED)
    page.write_text(with_tables(text, runs_table(runs), RUNS), encoding="utf-8")
    page = TOP / "docs" / "twin.md"
    text = with_tables(page.read_text(encoding="utf-8"), trained_twin_table(trained_twins), TRAINED)
    page.write_text(with_tables(text, twin_table(twins), TWIN), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
