"""The tables of the three questions, on the README, docs/three_questions.md and docs/division.md, written from results."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

import grpo_theory as gt
from grpo_theory.problem.gallery import KINDS
from paper_figures.content.panels import WORDS
from simulations.length.grid import RATES

TABLES = ("efficiency", "efficiency_by_length", "frontier", "trained_sizes", "race", "trained_drift")
HEAD = "| setting | compared | estimate | 95% limits | sample |\n|---|---|---|---|---|\n"
FRONT_HEAD = "| question | setting | compared | estimate | 95% limits |\n|---|---|---|---|---|\n"
QUESTIONS = ("size", "division", "clip")
NEW_DRAWS = "few prompts, new draws"
ENDS = WORDS["front"]
"""The worlds of whole runs that the page tells, in words; the report has the others."""
FRONT_RUNS = {("shared", "grpo", "SGD")}
"""What the README tells of small policies."""
RUNS = {*FRONT_RUNS, *((NEW_DRAWS, *how) for how in (("rloo", "SGD"), ("grpo", "SGD"), ("grpo", "Adam")))}
"""What the page tells of them."""
HEADS = ("lm-zero-shot", "lm-few-shot", "lm-instruct")
FAMILIES = {"head": "SmolLM2's head, one-digit answers", "random": "64 prompts, random features", "made up": "4 made-up prompts"}
AWAY = {("clip", "clip"): "with the clip", ("clip", "ratio"): "same runs, ratio unclipped", ("none", "none"): "no ratio"}
"""What runs of an arm are looked at with, in words."""
MULTIPLES = {"best": "at the best rates", "four times": "at four times these"}
SPANS = ((8, 8), (16, 64))
"""The group sizes over which what division gains is a range."""
PLANNED = " (planned)"
SMOL = "SmolLM2, LoRA, one-digit answers"
LOOKS = (("usual", "groups of 64", 96), ("longer", "groups of 64", 384))
"""The runs, rivals of groups of 4 and numbers of updates that the page tells; docs/trained_model.md has more."""


class Line(NamedTuple):
    """A row of a table: its question, whether the README has it, and its cells."""

    question: str
    front: bool
    setting: str
    compared: str
    estimate: str
    limits: str
    sample: str


def lines(tables: Mapping[str, pd.DataFrame]) -> Iterator[Line]:
    """Yield the rows of all tables, in the order in which they are shown."""
    yield from _steps(tables["efficiency"], tables["efficiency_by_length"])
    yield from _whole_runs(tables["frontier"])
    yield from _trained(tables["trained_sizes"])
    yield from _division(tables["race"])
    yield from _clip(tables["trained_drift"])
    yield from _ratios(tables["trained_sizes"])


def front_table(found: list[Line]) -> str:
    """Return the README's table: fewer rows than a question's, without the sample."""
    return FRONT_HEAD + "".join(f"| {' | '.join((line.question, *line[2:-1]))} |\n" for line in found if line.front)


def question_table(found: list[Line], question: str) -> str:
    """Return the table of a question on its page."""
    return HEAD + "".join(f"| {' | '.join(line[2:])} |\n" for line in found if line.question == question)


def _steps(efficiency: pd.DataFrame, by_length: pd.DataFrame) -> Iterator[Line]:
    """Yield the exact best sizes of one step, and what groups of 16 keep."""
    own = efficiency[(efficiency["quantity"] == "efficiency") & efficiency["problem"].isin(HEADS)]
    for name, shown in (("rloo", "RLOO"), ("grpo", "GRPO")):
        curves = own[own["estimator"] == name].pivot(index="group_size", columns="problem", values="estimate")
        best = curves.idxmax()
        yield Line(
            "size", False, "one step, SmolLM2's head", f"most efficient size, {shown}", _range(best), "exact", "3 prompt styles"
        )
    makes = [make for kind, make in KINDS.items() if kind != "copy"]
    problems = [make(1024, rate) for make in makes for rate in RATES]
    best = pd.Series([gt.group_size_law(problem, problem.theta).optimum for problem in problems])
    lost = by_length[(by_length["statement"] == "length/sixteen") & by_length["setting"].str.endswith("(rloo)")]["estimate"]
    setting = "one step, up to 1,024 uncertain tokens, undivided"
    compared = f"efficiency that groups of 16 keep of the best size's ({_range(best)})"
    yield Line("size", False, setting, compared, f"at least {1.0 - lost.max():.0%}", "exact", f"{len(KINDS)} kinds of task")


def _whole_runs(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what groups of 64 lead groups of 8 by at the last budget of each setting, and the extremes over sizes and budgets."""
    all_leads = table[(table["quantity"] == "lead over 8") & table["estimator"].isin(["grpo", "rloo"])]
    leads = all_leads[all_leads["group_size"] == 64]
    for (world, estimator, optimiser), part in leads.groupby(["world", "estimator", "optimiser"], sort=False):
        kept = part[~part["decaying"] & (part["responses"] == 256)]
        if (world, estimator, optimiser) in RUNS:
            row = kept.loc[kept["budget"].idxmax()]
            how = {"grpo": "divided", "rloo": "undivided"}[estimator] + (", Adam" if optimiser == "Adam" else "")
            setting = f"{ENDS[world]}, {row['budget']:,.0f} responses, {how}"
            sample = f"{row['replications']:.0f} draws, the leader ahead in {1.0 - row['other_sign']:.0%}"
            front = (world, estimator, optimiser) in FRONT_RUNS
            yield Line("size", front, setting, "groups of 64 less 8", *_points(row), sample)
    for words, own, extreme in (
        ("any other size less 8, largest", all_leads, "max"),
        ("groups of 64 less 8, lowest", leads, "min"),
    ):
        row = own.loc[getattr(own["estimate"], f"idx{extreme}")()]
        yield Line("size", False, "whole runs of all worlds and budgets", words, *_points(row), f"one of {len(own)} leads")


def _trained(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what groups of 4 lead by on SmolLM2."""
    leads = table[(table["quantity"] == "lead") & (table["trained"] == "adapters") & (table["estimator"] == "both")]
    leads = leads.set_index(["runs", "second", "update"])
    for runs, second, update in LOOKS:
        row = leads.loc[(runs, second, update)]
        compared = f"groups of 4 less {second.split()[-1]}{PLANNED if row['planned'] else ''}"
        setting = f"{SMOL}, divided and not, {update} updates"
        front = row["planned"] and second == "groups of 64"
        yield Line("size", front, setting, compared, *_points(row), f"{row['replications']:.0f} seeds")


def _division(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what division gains, by family, optimiser and group size: a range over settings."""
    gains = table.query("quantity == 'plain less' and arm == 'divided' and contest in ['Adam', 'SGD'] and group_size > 3")
    gains = gains.assign(estimate=-gains["estimate"], low=-gains["high"], high=-gains["low"])
    for family, words in FAMILIES.items():
        for contest, what in (("Adam", "Adam"), ("SGD", "plain ascent")):
            for least, most in SPANS:
                kept = (gains["family"] == family) & (gains["contest"] == contest)
                own = gains[kept & gains["group_size"].between(least, most)]
                if len(own):
                    units = "draws" if family == "random" else "runs"
                    units = f"or more {units}" if own["replications"].nunique() > 1 else units
                    sample = f"{len(own)} settings of {own['replications'].min():.0f} {units}"
                    shown = f"{least}" if least == most else f"{least} to {most}"
                    compared = f"divided less undivided, groups of {shown}, averaged over the run"
                    front = contest == "Adam" and family == "head" and most == 8
                    yield Line("division", front, f"{words}, {what}", compared, *_point_range(own), sample)


def _clip(table: pd.DataFrame) -> Iterator[Line]:
    """Yield how often updates of small policies point away, and what the clip gains there: ranges over settings."""
    looks = table[(table["part"] == "all") & (table["quantity"] == "away")]
    setting = "small policies, answers of 1 to 8 tokens"
    for (arm, estimator), words in AWAY.items():
        own = looks[(looks["arm"] == arm) & (looks["estimator"] == estimator)]["estimate"]
        shares = f"{own.min():.0%} to {own.max():.0%}"
        yield Line("clip", False, setting, f"updates whose mean points away, {words}", shares, "none", f"{len(own)} settings")
    ahead = table.query("quantity == 'ahead' and arm == 'clip' and rival == 'none'")
    for at, words in MULTIPLES.items():
        own = ahead[ahead["at"] == at]
        sample = f"{len(own)} settings of {own['replications'].min():.0f} or more problems"
        yield Line("clip", False, setting, f"clip less no ratio, {words}", *_point_range(own), sample)


def _ratios(table: pd.DataFrame) -> Iterator[Line]:
    """Yield the lead of the clip over no ratio on SmolLM2, as it was planned."""
    leads = table[(table["quantity"] == "lead") & (table["trained"] == "adapters") & (table["first"] == "PPO's clip")]
    row = leads[leads["planned"].astype(bool)].iloc[0]
    setting = f"{SMOL}, undivided, four updates per rollout, {row['update']:.0f} updates"
    yield Line("clip", True, setting, f"clip less {row['second']}{PLANNED}", *_points(row), f"{row['replications']:.0f} seeds")


def _range(values: pd.Series) -> str:
    """Return the least and the largest of some sizes."""
    low, high = f"{values.min():.0f}", f"{values.max():.0f}"
    return low if low == high else f"{low} to {high}"


def _points(row: Mapping[str, float]) -> tuple[str, str]:
    """Return an estimate and its limits in points."""
    low, high = (f"{100.0 * row[name]:+.1f}" for name in ("low", "high"))
    return f"{100.0 * row['estimate']:+.1f}", f"{low} to {high}"


def _point_range(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the least and the largest estimate of several settings in points, and the lowest and highest limit."""
    parts = [(rows[first].min(), rows[last].max()) for first, last in (("estimate", "estimate"), ("low", "high"))]
    estimate, limits = (f"{100.0 * low:+.1f} to {100.0 * high:+.1f}" for low, high in parts)
    return estimate, f"within {limits}"
