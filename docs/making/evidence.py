"""The evidence that stands in the repository, as tables of the documentation and lines of its reference."""

import re

import pandas as pd

from docs.making.places import DOCS, code_link
from grpo_theory.harness.discovery import studies
from simulations.claims import CATALOGUE, decided_by, parts_of
from simulations.claims.digest import cell, digest, number
from simulations.plan.plan_coverage import TEXTS

VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
COVERAGE = pd.read_csv(DOCS / "coverage.csv", keep_default_na=False)
SECTION = re.compile(r"^## (?P<title>(?P<number>\d+)\. .+?)$(?P<text>.*?)(?=^## |\Z)", flags=re.DOTALL | re.MULTILINE)
POINT = re.compile(r"CI/(?P<interval>\w+)")


def sections() -> dict[int, re.Match[str]]:
    """Return the sections of the derivations by their numbers, with `title` and `text`."""
    text = (DOCS / "derivations.md").read_text(encoding="utf-8")
    return {int(found["number"]): found for found in SECTION.finditer(text)}


def ids_in(title: str) -> set[str]:
    """Return the statements that a title names, as in "Bounds (U7, U8, U10 to U12)"."""
    found = set(re.findall(r"\b[UTNR]\d+\b", title))
    for letter, first, last in re.findall(r"\b([UTNR])(\d+) to [UTNR](\d+)\b", title):
        found |= {f"{letter}{number}" for number in range(int(first), int(last) + 1)}
    return found


def anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def verdict_table() -> str:
    """Return every statement that has a verdict, with links to its proof, its studies and the tests of both."""
    found, deciders, derived = digest(VERDICTS), decided_by(studies().values()), sections()
    lines = ["| claim | as stated | verdict (settings) | proof | code | tests |", "|---|---|---|---|---|---|"]
    for name, words in found.items():
        statement = CATALOGUE[name]
        sources = " ".join(one.source for one in (statement, *parts_of(statement)))
        numbers = {int(given) for given in re.findall(r"derivations\.md, (\d+)", sources)}
        numbers |= {number for number, section in derived.items() if name in ids_in(section["title"])}
        proofs = ", ".join(f"[{one}](derivations.md#{anchor(derived[one]['title'])})" for one in sorted(numbers))
        code = ", ".join(code_link(f"simulations/{_folder(study)}/{study}.py") for study in deciders[name])
        tests = sorted({test for one in numbers for test in re.findall(r"`(tests/\w+\.py)`", derived[one]["text"])})
        row = (name, cell(statement.text), cell(words).replace("\\*\\*", "**"), proofs, code, ", ".join(map(code_link, tests)))
        lines.append(f"| {' | '.join(row)} |")
    unmet = [one.id for one in CATALOGUE.values() if one.open]
    left = f"Not decided yet: {', '.join(unmet)} (`python -m simulations list --claims` says why)." if unmet else ""
    return "\n".join(lines) + f"\n\n{left or 'Every statement of the list is decided by a study.'}\n"


def _folder(study: str) -> str:
    return studies()[study].module.split(".")[1]


def coverage_table() -> str:
    """Return what every interval covers at its points, and the least and the median over the design."""
    lines = ["| interval | of | at a point | design | least | median |", "|---|---|---|---|---|---|"]
    for (interval, target), part in COVERAGE.groupby(["interval", "target"], sort=False):
        points = "; ".join(_points(interval, target))
        for first, row in enumerate(part.itertuples()):
            name, of, at = (f"`{interval}`", TEXTS.get(target, target), points) if first == 0 else ("", "", "")
            lines.append(f"| {name} | {cell(of)} | {at} | {row.design} | {row.least:.1%} | {row.median:.1%} |")
    return "\n".join(lines) + "\n"


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
