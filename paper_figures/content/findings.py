"""What was found, in sentences whose numbers are read off the verdicts and tables of the run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from grpo_theory.evidence import decided
from grpo_theory.harness.store import read_table
from grpo_theory.harness.verdicts import Verdicts
from grpo_theory.page.captions import signed
from grpo_theory.page.style import LANGUAGE_MODEL


class NotSaidError(LookupError):
    """What a finding says is not what the run says: a study is missing, or verdicts are others."""


@dataclass(frozen=True)
class Found:
    """What a run found."""

    verdicts: Verdicts
    results: Path

    def rows(self, name: str, *verdicts: str, problems: Iterable[str] | None = None) -> pd.DataFrame:
        """Return the rows of a statement, all of whose verdicts with power must be among those named, if any are."""
        claims = self.verdicts.claims
        rows = decided(claims[claims["id"] == name])
        if problems is not None:
            rows = rows[rows["problem"].isin(list(problems))]
        if rows.empty:
            raise NotSaidError(f"{name} has no verdict with power")
        others = sorted(set(rows["verdict"]) - set(verdicts))
        if verdicts and others:
            raise NotSaidError(f"{name} is {others[0]} somewhere")
        return rows

    def table(self, name: str) -> pd.DataFrame:
        """Return the table of a study."""
        if name not in self.verdicts.studies:
            raise NotSaidError(f"the study {name} was not run")
        return read_table(self.results, name)[0]


@dataclass(frozen=True)
class Finding:
    """A sentence, and the statement whose section has the evidence for it."""

    about: str
    says: Callable[[Found], str]


def _best_group_size(found: Found) -> str:
    found.rows("U9/best/printed", "refuted")
    found.rows("U9/best/corrected", "confirmed")
    law = (
        found.table("best_group")
        .dropna(subset="quantity")
        .pivot(index="problem", columns="quantity", values="optimum")
        .loc[list(LANGUAGE_MODEL)]
    )
    return (
        "The error of the leave-one-out gradient is least with about $1+\\sqrt{c_3/c_1}$ responses per prompt, at a fixed number "
        "of responses. Theorem 7 prints $\\sqrt{c_3/c_1}$. Here $c_1$ is the variance between prompts, and $c_3$ is what the "
        f"estimated baseline adds. On three heads of SmolLM2 that is {_listed(law['corrected'], '.1f')} responses. The printed "
        f"formula has {_listed(law['printed'], '.1f')} with this $c_3$, and {_listed(law['remainder'], '.1f')} with "
        "$E\\|W\\|^2$, by which the paper bounds it."
    )


def _efficiency(found: Found) -> str:
    problems = found.rows("efficiency/larger groups")["problem"]
    table = found.table("efficiency").query("quantity == 'efficiency'")
    wide = table.pivot(index="group_size", columns=["estimator", "problem"], values="estimate")
    own = {name: wide[name][problems] for name in ("rloo", "grpo")}
    sizes = {name: _range(own[name].idxmax(), ".0f") for name in own}
    gain = (100.0 * (own["grpo"].max() / own["rloo"].max() - 1.0)).round()
    return (
        "A learning rate undoes any factor, so estimators are compared by the efficiency of one step. Steps on heads of SmolLM2 "
        f"have 1,024 responses. There the leave-one-out mean is best with {sizes['rloo']} responses per prompt. GRPO, which "
        f"divides by the standard deviation, is best with {sizes['grpo']}. Each at its best, GRPO's efficiency is higher by "
        f"{signed(gain.min(), '.0f')}% to {signed(gain.max(), '.0f')}%."
    )


def _assumption(found: Found) -> str:
    found.rows("U6/assumption", "refuted", problems=LANGUAGE_MODEL)
    rows = found.rows("U6/assumption", "confirmed", "refuted")
    refuted = int((rows["verdict"] == "refuted").sum())
    table = found.table("baselines").groupby("problem")[["correlation_mean", "break_even"]].first().loc[list(LANGUAGE_MODEL)]
    if table["break_even"].min() < 2.0:
        raise NotSaidError("the group's mean has the smaller error at every group size somewhere")
    return (
        "Corollary 5 assumes that the reward and the squared length of the score, $\\nabla\\log\\pi$, are uncorrelated. This "
        f"fails on {refuted} of {len(rows)} problems. On three policies of SmolLM2 the mean |correlation| is "
        f"{_range(table['correlation_mean'], '.2f')}. There the gradient is less noisy without a baseline "
        f"than with the group's mean, up to groups of {_listed(np.floor(table['break_even']), 'g')}."
    )


def _near_the_oracle(found: Found) -> str:
    near, far = found.rows("U6/near, G=8"), found.rows("U6/same, G=32", "reproduced here")
    of_near, of_far = (rows.loc[rows["problem"].str.contains(", success "), "estimate"] for rows in (near, far))
    if of_near.empty or of_far.empty:
        raise NotSaidError("no head that was trained further was looked at")
    return (
        "An oracle knows the prompt's value. On SmolLM2's head, trained further, the group's own mean as baseline has "
        f"{_range(100.0 * of_near, '.0f')}% more error with 8 responses per prompt. With 32 it has at most "
        f"{100.0 * of_far.max():.1f}% more."
    )


def _limit_law(found: Found) -> str:
    printed = found.rows("U11/printed", "refuted")
    corrected = found.rows("U11/corrected", "confirmed", "inconclusive")
    confirmed = int((corrected["verdict"] == "confirmed").sum())
    return (
        "Theorem 8's law of where training ends lacks a factor $\\beta^2$ in its covariance, where $\\beta$ is the scale of the "
        f"steps. As printed it is refuted in {_all(len(printed))} settings. The largest distance of distribution functions is "
        f"{_range(printed['estimate'], '.2f')}, and at most {corrected['estimate'].max():.3f} once corrected. The corrected law "
        f"is refuted in none of {len(corrected)} settings, and this run confirms it in {confirmed or 'none'}."
    )


def _division(found: Found) -> str:
    found.rows("division/pays")
    table = found.table("race").query("quantity == 'plain less' and arm == 'divided' and contest == 'Adam'")
    points = -100.0 * table.set_index("family")["estimate"]
    if set(points.index) != {"head", "random", "made up"}:
        raise NotSaidError("the study race ran in too few settings")
    ranges = {family: _range(points[[family]], ".1f").replace("-", "\u2212") for family in points.index.unique()}
    return (
        "Runs that divide by the standard deviation are compared with runs that do not, each side at the best of the steps "
        "tried. Answers have one token and are right or wrong, prompts share features, groups have at least 8 responses, and "
        "the optimiser is Adam. On heads of SmolLM2, whose "
        f"hidden states are frozen, success averaged over a run changes by {ranges['head']} points of a hundred. On prompts with "
        f"random features the mean over draws changes by {ranges['random']}, and on four made-up prompts success changes by "
        f"{ranges['made up']}. It rises by a "
        f"point or more in {int((points >= 1.0).sum())} of {points.size} settings, and falls by as much in "
        f"{int((points <= -1.0).sum())}."
    )


def _signs(found: Found) -> str:
    printed = [found.rows(f"{name}/printed", "refuted")["estimate"].max() for name in ("T1", "T2")]
    corrected = [found.rows(f"{name}/corrected", "confirmed")["estimate"].abs().max() for name in ("T1", "T2")]
    return (
        "Both decompositions of an update off policy have a term with the wrong sign. As printed the two sides are up to "
        f"{max(printed):.0f} times the update apart. Corrected, they agree to {_power(max(corrected))} of it."
    )


def _whose_gradient(found: Found) -> str:
    found.rows("T6/corrected", "confirmed")
    found.rows("T6/printed", "refuted")
    rows = found.rows("T6/most")
    horizons = rows["problem"].str.extract(r"T = (\d+)")[0].astype(int)
    short, long = min(set(horizons) - {1}), horizons.max()
    shares = [_range(100.0 * rows.loc[horizons == horizon, "estimate"], ".0f") for horizon in (short, long)]
    return (
        "GRPO's token ratios estimate the gradient of neither policy but that of a third objective (old prefixes, current "
        "token, old continuation). Its mean update is nearer to the current policy's gradient than to the old one's for "
        f"{shares[0]}% of random problems of {short} tokens, by setting. Of problems of {long} tokens it is so "
        f"for {shares[1]}%."
    )


def _divided_sum(found: Found) -> str:
    ratios = found.rows("N6/printed", "refuted")["estimate"]
    found.rows("N6/weighted", "confirmed")
    return (
        "Theorem 3.2 bounds a sum of squared gradients. The sum is larger than its bound wherever we tried, by factors of "
        f"{_range(ratios, '.1f')}. A weighted sum keeps the bound."
    )


def _kl_gradient(found: Found) -> str:
    found.rows("U17/printed", "refuted")
    cosines = [_facts(text)["cosine with it"] for text in found.rows("U17/printed mean", "refuted")["facts"]]
    if max(cosines) >= 0.0:
        raise NotSaidError("the printed gradient points away on some problems only")
    return (
        "The K3 term is to hold the policy near its reference. Its printed gradient has the ratio upside down, and points away "
        f"from what it should descend. Their cosine is {signed(max(cosines))} or less on {_all(len(cosines))} problems."
    )


def _finite_groups(found: Found) -> str:
    found.rows("U16/printed", "refuted")
    rows = found.rows("U16/corrected", "confirmed")
    table = pd.DataFrame([_facts(text) for text in rows["facts"]])
    printed = table["success at the printed maximiser"]
    groups, penalty, both = (
        100.0 * (1.0 - table[name] / printed).max()
        for name in ("with groups of this size alone", "with the penalty that is descended alone", "success at the corrected one")
    )
    return (
        "Groups of finite size do not climb $2\\arcsin\\sqrt V$, where $V$ is the probability of success. That alone leaves "
        f"success up to {groups:.1f}% below its value at the maximiser that Proposition 13 names. The penalty descends another "
        f"divergence than is printed. That alone leaves success up to {penalty:.1f}% below, and both together {both:.1f}%. The "
        "objective that is climbed is known in closed form, for every trainer's convention."
    )


FINDINGS = (
    Finding("U9", _best_group_size),
    Finding("efficiency", _efficiency),
    Finding("U6", _assumption),
    Finding("U6", _near_the_oracle),
    Finding("U11", _limit_law),
    Finding("U16", _finite_groups),
    Finding("U17", _kl_gradient),
    Finding("T1", _signs),
    Finding("T6", _whose_gradient),
    Finding("N6", _divided_sum),
    Finding("division", _division),
)
"""The lines with which the report opens."""


def _listed(values: Iterable[float], form: str) -> str:
    *first, last = (f"{value:{form}}" for value in values)
    return f"{', '.join(first)} and {last}"


def _range(values: pd.Series, form: str) -> str:
    low, high = f"{values.min():{form}}", f"{values.max():{form}}"
    return low if low == high else f"{low} to {high}"


def _all(count: int) -> str:
    return {1: "the one", 2: "both"}.get(count, f"all {count}")


def _power(value: float) -> str:
    """Write a small number to one digit, as LaTeX."""
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"${mantissa}\\times10^{{{int(exponent)}}}$"


def _facts(text: str) -> dict[str, float]:
    """Read the facts of a row of claims.csv, "name = number; ...", back."""
    return {name.strip(): float(number) for name, _, number in (fact.rpartition("=") for fact in text.split(";"))}
