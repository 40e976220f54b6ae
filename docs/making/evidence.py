"""The evidence that stands in the repository, as tables of the documentation and lines of its reference."""

import re

import pandas as pd

from docs.making.derivations import proofs_of
from docs.making.places import DOCS
from grpo_theory.page.digest import cell, number
from grpo_theory.page.printed import CODE, Printed, printed
from simulations.collection import collection
from simulations.sources import PAPERS

VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
COVERAGE = pd.read_csv(DOCS / "coverage.csv", keep_default_na=False)
TEXTS = {
    "uniform share": "the share of uniform groups at the logged group size",
    "uniform share, doubled": "the share of uniform groups at twice the logged group size",
    "step": "GRPO's mean weight of a prompt, h'(p)",
    "weighted rate": "the mean success rate of prompts by MaxRL's weights",
    "hard prompts": "the share of prompts that succeed less than 20% of the time",
    "hard weight": "the share of GRPO's weight on prompts that succeed less than 20% of the time",
    "learning rate": "the factor on the learning rate when GRPO's groups are doubled",
}
"""What the planner's intervals are of."""
SHOWN = ("value_naive", "value_clustered", "value_effective", "gradient_between", "group_size_fieller")
SHOWN += ("last_iterate", "gap_limit", "learned_value", "random_scaling", "paired_difference", "paired_sequence")
"""Intervals of the table of coverages; docs/coverage.csv has all."""
FEW = 8
"""With fewer statements a paper has no heading of its own."""
HEAD = "|number|verdict|statement|what holds instead|proof|study|\n|---|---|---|---|---|---|"
FIRST = re.compile(r"; |\. (?=[A-Z])")
"""Behind the first of several corrections, or its first sentence."""
NAMED = re.compile(r"(.*?\d{4}\)?)(?:, (.*))?")
"""A source that is not at arXiv: name and year, and the place there."""
WORDS = 15
"""What is kept of a confirmed statement of a paper without a heading."""
POINT = re.compile(r"CI/(?P<interval>\w+)")


def theorem_table(verdicts: pd.DataFrame) -> str:
    """Return a row for each statement that a paper prints, below the paper's name.

    Papers with few rows come last, and what they state is cut short where it is confirmed.
    """
    papers: dict[str, list[Printed]] = {}
    for row in printed(collection(), verdicts, PAPERS):
        papers.setdefault(_paper_and_number(row)[0], []).append(row)
    lines = []
    for name, rows in papers.items():
        if len(rows) >= FEW:
            lines += [f"## {name}", "", HEAD, *map(_theorem_row, rows), ""]
    lines += ["## Other papers", "", HEAD]
    for name, rows in papers.items():
        if len(rows) < FEW:
            lines += [f"|**{name}**||||||", *(_theorem_row(row, WORDS if row.verdict == "confirmed" else None) for row in rows)]
    return "\n".join(lines) + "\n"


def _paper_and_number(row: Printed) -> tuple[str, str]:
    """Return what a paper is called, with its address if it has one, and where in it a statement stands."""
    if row.link:
        return f"[{row.name or row.paper}]({row.link})", row.number
    found = NAMED.fullmatch(row.paper)
    return (found[1], found[2] or "") if found else (row.paper, "")


def _theorem_row(row: Printed, most: int | None = None) -> str:
    """Return a row of the table, with so many words of what is stated."""
    number, code, words = _paper_and_number(row)[1], CODE.match(row.id), row.brief.split()
    place = f"{number} ({code[0]})" if number and code else number or (code[0] if code else row.id.partition("/")[2])
    stated = row.brief if most is None or len(words) <= most else " ".join([*words[:most], "..."])
    proofs = [f"[{one.number}]({one.page})" for one in proofs_of(row.id.partition("/")[0], row.sources)]
    studies, instead = ", ".join(f"`{one}`" for one in row.studies), FIRST.split(row.instead, maxsplit=1)[0]
    word = f"**{row.verdict}**" if row.verdict == "refuted" else row.verdict
    return f"|{'|'.join((place, word, cell(stated), cell(instead), ', '.join(proofs), studies))}|"


def coverage_table(coverage: pd.DataFrame) -> str:
    """Return what some intervals cover: the highest and the lowest median of a design, and the least in any of its cells."""
    lines = ["| `gt.intervals.` | of | medians by design | least | cells |", "|---|---|---|---|---|"]
    for (interval, target), part in coverage[coverage["interval"].isin(SHOWN)].groupby(["interval", "target"], sort=False):
        medians = f"{part['median'].min():.0%} to {part['median'].max():.0%}"
        lines.append(f"| `{interval}` | {target} | {medians} | {part['least'].min():.1%} | {part['cells'].sum()} |")
    return "\n".join(lines)


def _points(interval: str, target: str) -> list[str]:
    """Return the coverages of an interval that have a verdict: those of one component apart where targets are.

    Claims about plans judge how many intervals miss.
    """
    names = (f"CI/{interval}/{target}", f"CI/{interval}")
    rows = VERDICTS[VERDICTS["id"].isin(names) & (VERDICTS["control"] == "refuted") & (VERDICTS["prediction"] == 0.95)]
    shares = [*zip(rows["estimate"], rows["problem"], strict=True)]
    missing = VERDICTS[(VERDICTS["id"] == f"plan/{target}") & (VERDICTS["control"] == "refuted")]
    shares += zip(1.0 - missing["estimate"], missing["problem"], strict=True)
    return [f"{share:.1%} ({problem})" for share, problem in shares]


def measured(interval: str) -> list[str]:
    """Return what the reference says, below its docstring, of the coverage of what a function returns, if it is known."""
    lines = []
    for target, part in COVERAGE[COVERAGE["interval"] == interval].groupby("target", sort=False):
        of = TEXTS.get(str(target), target)
        lines += [f"* {of}, {point}" for point in _points(interval, str(target))]
        for row in part.itertuples():
            lines.append(f"* {of}, {row.design}: least {row.least:.1%}, median {row.median:.1%}, of {row.cells} cells")
    return ["", ".. rubric:: Measured coverage of 95% intervals", "", *lines, ""] if lines else []


def reach_table() -> str:
    """Return how far the first order of the training law is off, by setting and group size."""
    rows = VERDICTS[VERDICTS["id"].isin(["U9/policy-law", "U9/policy-law, beyond"])]
    parts = rows["problem"].str.extract(r"(?P<setting>.+), G = (?P<size>\d+)")
    off = rows.assign(setting=parts["setting"], size=parts["size"].astype(int))
    wide = off.pivot_table(index="setting", columns="size", values="estimate", sort=False).sort_index(axis=1)
    lines = [f"| setting, G | {' | '.join(map(str, wide.columns))} |", f"|---|{'---|' * wide.shape[1]}"]
    for setting, values in wide.iterrows():
        lines.append(f"| {setting} | {' | '.join('' if value != value else number(100 * value) for value in values)} |")
    return "\n".join(lines) + "\n"
