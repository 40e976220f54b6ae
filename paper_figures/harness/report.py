"""The report: one self-contained HTML page and its Markdown twin."""

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from grpo_theory.evidence import FAMILY_ERROR
from paper_figures.harness.advice import RULE, advice, choices
from paper_figures.harness.discovery import figures, figures_of
from paper_figures.harness.style import ESTIMATORS, PROBLEMS
from simulations.claims import CATALOGUE, decided_by
from simulations.harness.discovery import studies
from simulations.harness.store import read_run, read_table, write_atomically
from simulations.harness.verdicts import Verdicts

SYMBOLS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "?", "no power": "-"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
figure { margin: 1.5rem 0; } figure img { width: 100%; } figcaption { color: #444; font-size: .93em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .86em; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e5e5e5; text-align: left; vertical-align: top; }
th { background: #f6f6f6; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.confirmed { color: #00694d; } .refuted { color: #a63c00; font-weight: 600; } .inconclusive { color: #777; }
summary { cursor: pointer; margin: 1rem 0; font-weight: 600; }
"""


class Page:
    """A document that is written in HTML and in Markdown at once."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.html: list[str] = [f"<h1>{html.escape(title)}</h1>"]
        self.markdown: list[str] = [f"# {title}"]

    def heading(self, text: str) -> None:
        """Add a section."""
        self.html.append(f"<h2>{html.escape(text)}</h2>")
        self.markdown.append(f"## {text}")

    def paragraph(self, text: str) -> None:
        """Add plain text."""
        self.html.append(f"<p>{html.escape(text)}</p>")
        self.markdown.append(text)

    def figure(self, folder: Path, name: str, caption: str) -> None:
        """Add a figure: embedded in the HTML, linked from the Markdown."""
        data = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
        image = f'<img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{data}">'
        self.html.append(f"<figure>{image}<figcaption>{html.escape(caption)}</figcaption></figure>")
        self.markdown.append(f"![{name}](figures/{name}.png)\n\n*{caption}*")

    def table(self, table: pd.DataFrame, summary: str | None = None) -> None:
        """Add a table; with a summary it is folded away in the HTML."""
        head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.itertuples(index=False))
        block = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        if summary is not None:
            block = f"<details><summary>{html.escape(summary)}</summary>{block}</details>"
            self.markdown.append(f"**{summary}**")
        self.html.append(block)
        lines = [[str(column) for column in table.columns], ["---"] * len(table.columns)]
        lines += [[_text(value) for value in row] for row in table.itertuples(index=False)]
        self.markdown.append("\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines))

    def write(self, out: Path) -> None:
        """Write report.html and report.md."""
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head><body>{''.join(self.html)}</body></html>"
        )
        write_atomically(out / "report.html", page.encode())
        write_atomically(out / "report.md", ("\n\n".join(self.markdown) + "\n").encode())


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(value: Any) -> str:
    text = html.escape(_text(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{text}</td>'
    verdict = next((name for name, symbol in SYMBOLS.items() if value in (name, symbol)), "")
    return f'<td class="{verdict}">{text}</td>' if verdict else f"<td>{text}</td>"


def _matrix(claims: pd.DataFrame) -> pd.DataFrame:
    """One row for each claim, one column for each problem."""
    symbols = claims.assign(symbol=claims["verdict"].map(SYMBOLS))
    matrix = symbols.pivot_table(
        index=["id", "whose", "statement"], columns="problem", values="symbol", aggfunc="first", sort=False
    )
    order = sorted(matrix.columns, key=lambda name: list(PROBLEMS).index(name) if name in PROBLEMS else len(PROBLEMS))
    return matrix[order].fillna("").reset_index()


def _by_verdict(claims: pd.DataFrame) -> pd.DataFrame:
    """One row for each claim; where it was confirmed, refuted and left open."""
    rows = []
    for key, part in claims.groupby("id", sort=False):
        settings = {verdict: "; ".join(part.loc[part["verdict"] == verdict, "problem"]) for verdict in SYMBOLS}
        statement = CATALOGUE[str(key)]
        rows.append({"id": key, "whose": statement.whose, "statement": statement.text, **settings})
    return pd.DataFrame(rows)


def _open_statements() -> pd.DataFrame:
    """One row for each statement of the catalogue that no study decides."""
    deciders = decided_by(studies().values())
    found = [one for one in CATALOGUE.values() if not deciders.get(one.id)]
    return pd.DataFrame([(one.id, one.text, one.source, one.open) for one in found], columns=["id", "statement", "source", "why"])


def _covered(claims: pd.DataFrame) -> pd.DataFrame:
    """One row for each interval and setting: the coverage, or the power, with its simultaneous limits."""
    misses = claims["kind"] == "upper bound"
    shares = {"covers": claims["estimate"].where(~misses, 1.0 - claims["estimate"])}
    shares |= {
        "low": claims["low"].where(~misses, 1.0 - claims["high"]),
        "high": claims["high"].where(~misses, 1.0 - claims["low"]),
    }
    shown = claims[["id", "statement", "problem"]].rename(columns={"problem": "setting"})
    return shown.assign(**shares, narrowed=claims["control"], verdict=claims["verdict"].map(SYMBOLS))


def _run_coverage(results: Path) -> pd.DataFrame:
    table, _ = read_table(results, "coverage_runs")
    design = table[(table["part"] == "design") & (table["measure"] == "coverage")]
    grouped = design.groupby(["interval", "target", "schedule", "steps"], sort=False)["estimate"]
    text = grouped.agg(lambda shares: f"{shares.min():.3f}, {shares.median():.3f}")
    wide = text.unstack(["schedule", "steps"], fill_value="")
    wide.columns = [f"{schedule}, n = {steps}" for schedule, steps in wide.columns]
    return wide.reset_index()


def _group_sizes(results: Path) -> pd.DataFrame:
    table, _ = read_table(results, "error_law")
    law = table.groupby("problem", sort=False)[["c1", "c2", "c3", "optimum", "paper_optimum"]].first().reset_index()
    return law.rename(columns={"optimum": "G* exact, 1 + sqrt(c3/c1)", "paper_optimum": "G* printed, sqrt(c3/c1)"})


def _who_wins(results: Path) -> pd.DataFrame:
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


def _facts(results: Path, names: Sequence[str]) -> pd.DataFrame:
    rows = []
    for name in names:
        table, facts = read_table(results, name)
        seconds = read_run(results, name).get("processor seconds", "not known")
        settings = {column: sorted(set(table[column])) for column in ("batch_size", "group_size") if column in table}
        counts = sorted(set(table["replications"])) if "replications" in table else ["exact"]
        text = ", ".join(map(str, counts))
        rows.append((name, studies()[name].title, json.dumps(settings, default=int), text, facts["seed"], seconds))
    columns = ["study", "title", "settings", "replications a cell", "seed", "processor seconds"]
    return pd.DataFrame(rows, columns=columns)


def _origin(verdicts: Verdicts) -> str:
    """Say what the verdicts were made from."""
    mode = "a quick run (fewer replications)" if verdicts.quick else "a full run"
    missing = [name for name in studies() if name not in verdicts.studies]
    if not missing:
        return f"Made from {mode} of all {len(verdicts.studies)} studies with seed {verdicts.seed}."
    return (
        f"Made from {mode} of {len(verdicts.studies)} of {len(studies())} studies with seed {verdicts.seed}: "
        f"{', '.join(verdicts.studies)}. Nothing is said here of the others: {', '.join(missing)}."
    )


def write_report(verdicts: Verdicts, results: Path, out: Path) -> None:
    """Write the report from the verdicts and the tables that they were judged from, of all studies or of some."""
    claims = verdicts.claims
    page = Page("grpo_theory: what is true about GRPO")
    page.paragraph(_origin(verdicts))
    counts = claims["verdict"].value_counts()
    powerless = claims[claims["control"] != "refuted"]
    page.paragraph(
        f"{len(claims)} claims judged in {claims['problem'].nunique()} settings: "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        + f". All intervals hold together with probability at least {1 - FAMILY_ERROR:.3f}. "
        + f"Negative controls: {len(claims) - len(powerless)} of {len(claims)} refuted, as they must be"
        + (f"; no power: {', '.join(powerless['id'] + ' on ' + powerless['problem'])}." if len(powerless) else ".")
    )
    page.heading("Verdicts")
    page.paragraph(
        "✓ confirmed, ✗ refuted, ? inconclusive. /printed is the statement as the paper prints it, /corrected is ours, with "
        "its proof in docs/derivations.md. U6 and R2 are judged whether or not Assumption 2 holds; it holds exactly where "
        "U6/assumption is confirmed. U13/correlated is U13 where its assumption fails: what becomes of the conclusion without it."
    )
    intervals, own = claims["id"].str.startswith("CI/"), claims["id"] == "estimator"
    gallery = claims["problem"].isin(list(PROBLEMS)) & ~intervals & ~own
    if gallery.any():
        page.table(_matrix(claims[gallery]))
    if not (gallery | intervals).all():
        page.paragraph("On training runs and limit laws, the settings in which each claim was confirmed, refuted or left open:")
        page.table(_by_verdict(claims[~gallery & ~intervals]))
    page.table(claims.drop(columns=["power", "control_estimate"]), summary="All claims with their intervals")
    page.heading("Statements not decided yet")
    page.table(_open_statements())
    page.heading("Figures")
    drawn = figures_of(verdicts.studies)
    for name in drawn:
        page.figure(out / "figures", name, figures()[name].CAPTION)
    if len(drawn) < len(figures()):
        page.paragraph(f"Not drawn, because a table is missing: {', '.join(name for name in figures() if name not in drawn)}.")
    if "baselines" in verdicts.studies:
        page.heading("Who has the lower variance")
        page.paragraph(
            "Simulated error of one group's gradient about its prompt's gradient, relative to the oracle with the value baseline."
        )
        page.table(_who_wins(results))
    if "error_law" in verdicts.studies:
        page.heading("The scaling law and the optimal group size")
        page.paragraph("MSE of the leave-one-out gradient = c1/B + c2/(BG) + c3/(BG(G-1)), exactly, for every B >= 1 and G >= 2.")
        page.table(_group_sizes(results))
    _add_coverage(page, results, verdicts.studies, claims[intervals])
    page.heading("How this was made")
    page.table(_facts(results, verdicts.studies))
    page.paragraph("Versions: " + ", ".join(f"{name} {number}" for name, number in verdicts.versions.items()) + ".")
    page.write(out)


def _add_coverage(page: Page, results: Path, names: Sequence[str], claims: pd.DataFrame) -> None:
    """Add what is known of confidence intervals."""
    if len(claims) or {"coverage", "coverage_runs"} & set(names):
        page.heading("Coverage of confidence intervals")
    if len(claims):
        page.paragraph("At single points, with many replications:")
        page.table(_covered(claims))
    if "coverage" in names:
        page.paragraph(f"What to use on one batch. {RULE}")
        found = advice(read_table(results, "coverage")[0])
        page.table(choices(found))
        shown = found.astype(object).where(found.notna(), "none bounded")
        page.table(shown, summary="All intervals, and what the rule says of them")
    if "coverage_runs" in names:
        page.paragraph(
            "On one training run, started 1.5 from the maximiser: least and median coverage over three problems, two sizes of "
            "batch and the components, by steps and schedule."
        )
        page.table(_run_coverage(results))
