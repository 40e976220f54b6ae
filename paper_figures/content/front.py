"""The tables of the three questions, on the README and on docs/three_questions.md: each number is written there from a result."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

import grpo_theory as gt
from grpo_theory.problem.chains import KINDS
from simulations.length.grid import RATES

TABLES = ("efficiency", "efficiency_by_length", "frontier", "trained_sizes", "race", "trained_drift")
HEAD = "| setting | compared | estimate | 95% limits | sample |\n|---|---|---|---|---|\n"
FRONT_HEAD = "| question | setting | compared | estimate | 95% limits | sample |\n|---|---|---|---|---|---|\n"
QUESTIONS = ("size", "division", "clip")
ENDS = {"few prompts": "8 prompts, one-token answers", "shared": "128 prompts, one-token answers"}
ENDS |= {"easy": "128 easy prompts, one-token answers", "16 tokens": "8 prompts, answers of up to 16 tokens"}
ENDS |= {"learned features": "8 prompts, a network learns features"}
"""The worlds of whole runs that the page tells, in words; the report has the others."""
HEADS = ("lm-zero-shot", "lm-few-shot", "lm-instruct")
SMOL = "SmolLM2, LoRA, one-digit answers"


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
    """Return the README's table."""
    return FRONT_HEAD + "".join(f"| {' | '.join((line.question, *line[2:]))} |\n" for line in found if line.front)


def question_table(found: list[Line], question: str) -> str:
    """Return the table of a question on its page."""
    return HEAD + "".join(f"| {' | '.join(line[2:])} |\n" for line in found if line.question == question)


def _steps(efficiency: pd.DataFrame, by_length: pd.DataFrame) -> Iterator[Line]:
    """Yield the exact best sizes of one step, and what groups of 16 keep."""
    own = efficiency[(efficiency["quantity"] == "efficiency") & efficiency["problem"].isin(HEADS)]
    for name, shown in (("rloo", "RLOO"), ("grpo", "GRPO")):
        best = own[own["estimator"] == name].groupby("problem").apply(lambda part: part.set_index("group_size")["estimate"].idxmax())
        yield Line("size", False, "one step, SmolLM2's head", f"most efficient size, {shown}", _range(best), "exact", "3 prompt styles")
    sizes = [
        gt.group_size_law(problem, problem.theta).optimum
        for kind, make in KINDS.items()
        if kind != "copy"
        for problem in (make(1024, rate) for rate in RATES)
    ]
    setting = "one step, up to 1,024 uncertain tokens"
    yield Line("size", True, setting, "most efficient size, RLOO", _range(pd.Series(sizes)), "exact", "3 tasks")
    lost = by_length[(by_length["statement"] == "length/sixteen") & by_length["setting"].str.endswith("(rloo)")]["estimate"]
    yield Line("size", True, setting, "efficiency that groups of 16 keep", f"at least {1.0 - lost.max():.0%}", "exact", "4 tasks")


def _whole_runs(table: pd.DataFrame) -> Iterator[Line]:
    """Yield the lead of groups of 64 over groups of 8 at the last budget of each world and estimator."""
    leads = table[(table["quantity"] == "lead over 8") & (table["group_size"] == 64)]
    for (world, estimator, optimiser), part in leads.groupby(["world", "estimator", "optimiser"], sort=False):
        kept = part[~part["decaying"] & (part["responses"] == 256)]
        if world in ENDS and estimator in ("grpo", "rloo") and len(kept):
            row = kept.loc[kept["budget"].idxmax()]
            how = {"grpo": "divided", "rloo": "undivided"}[estimator] + (", Adam" if optimiser == "Adam" else "")
            setting = f"{ENDS[world]}, {row['budget']:,.0f} responses, {how}"
            sample = f"{row['replications']:.0f} draws, {row['other_sign']:.0%} of other sign"
            front = world == "few prompts" and optimiser == "SGD"
            yield Line("size", front, setting, "success, groups of 64 less 8", *_points(row), sample)


def _trained(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what groups of 4 lead by on SmolLM2."""
    leads = table[(table["quantity"] == "lead") & (table["trained"] == "adapters") & (table["estimator"] == "both")]
    for runs, second, update in (
        ("usual", "groups of 64", 96),
        ("usual", "groups of 32", 96),
        ("usual", "groups of 8", 96),
        ("usual", "groups of 2", 96),
        ("longer", "groups of 64", 384),
    ):
        row = leads[(leads["runs"] == runs) & (leads["second"] == second) & (leads["update"] == update)].iloc[0]
        planned = " (planned)" if row["planned"] else ""
        compared = f"success, groups of 4 less {second.split()[-1]}{planned}"
        front = second == "groups of 64"
        yield Line("size", front, f"{SMOL}, {update} updates", compared, *_points(row), f"{row['replications']:.0f} seeds")


def _division(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what division gains, by family, optimiser and group size: a range over problems."""
    gains = table.query("quantity == 'plain less' and arm == 'divided' and contest in ['Adam', 'SGD'] and group_size > 3")
    gains = gains.assign(estimate=-gains["estimate"], low=-gains["high"], high=-gains["low"])
    families = {"head": "SmolLM2's head, one-digit answers", "random": "64 prompts, random features", "made up": "4 made-up prompts"}
    for family, words in families.items():
        for contest in ("Adam", "SGD"):
            for sizes in ((8,), (16, 32, 64)):
                own = gains[(gains["family"] == family) & (gains["contest"] == contest) & gains["group_size"].isin(sizes)]
                if len(own):
                    shown = "8" if sizes == (8,) else "16 to 64"
                    what = "plain ascent" if contest == "SGD" else contest
                    units = "draws" if family == "random" else "blocks of runs"
                    sample = f"{len(own)} settings of {own['replications'].min():.0f} {units}"
                    front = contest == "Adam" and family != "made up" and (family == "head" or sizes != (8,))
                    compared = f"success averaged over the run, divided less undivided, G = {shown}"
                    yield Line("division", front, f"{words}, {what}", compared, *_point_range(own), sample)


def _clip(table: pd.DataFrame) -> Iterator[Line]:
    """Yield how often updates of small policies point away, and what the clip gains there: ranges over settings."""
    looks = table[(table["part"] == "all") & (table["quantity"] == "away")]
    setting = "small policies, answers of 1 to 8 tokens"
    for arm, estimator, words in (("clip", "clip", "with the clip"), ("clip", "ratio", "same runs, ratio unclipped"), ("none", "none", "no ratio")):
        own = looks[(looks["arm"] == arm) & (looks["estimator"] == estimator)]["estimate"]
        shares = f"{own.min():.0%} to {own.max():.0%}"
        sample = f"{len(own)} settings"
        yield Line("clip", False, setting, f"updates whose mean points away, {words}", shares, "estimates", sample)
    for at, words in (("best", "at the best rates"), ("twice", "at twice these"), ("four times", "at four times these")):
        own = table.query("quantity == 'ahead' and arm == 'clip' and rival == 'none' and at == @at")
        sample = f"{len(own)} settings of {own['replications'].min():.0f} or more problems"
        yield Line("clip", at == "best", setting, f"success, clip less no ratio, {words}", *_point_range(own), sample)


def _ratios(table: pd.DataFrame) -> Iterator[Line]:
    """Yield the lead of the clip over the other uses of ratios on SmolLM2, at all looks."""
    leads = table[(table["quantity"] == "lead") & (table["trained"] == "adapters") & (table["first"] == "PPO's clip")]
    for row in leads.sort_values(["second", "update"]).to_dict("records"):
        setting = f"{SMOL}, four updates per rollout, {row['update']} updates"
        planned = " (planned)" if row["planned"] else ""
        end = ", at the grid's end" if row["at_end"] else ""
        front = row["second"] == "no ratio" and row["update"] in (12, 96)
        sample = f"{row['replications']:.0f} seeds{end}"
        yield Line("clip", front, setting, f"success, clip less {row['second']}{planned}", *_points(row), sample)


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
