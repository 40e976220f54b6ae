"""What was found, in sentences whose numbers are read off the verdicts and tables of the run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from grpo_theory.evidence import decided
from grpo_theory.harness.store import Verdicts, read_table
from grpo_theory.page.captions import signed
from grpo_theory.page.document import TEMPLATES
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
    """The statement whose section has the evidence, and what reads the numbers of its sentence in ``findings.jinja``."""

    about: str
    reads: Callable[[Found], dict[str, str]]

    def says(self, found: Found) -> str:
        """Return the sentence of a run; raise `NotSaidError` if it does not say that."""
        return str(getattr(_SENTENCES, self.reads.__name__.removeprefix("_"))(**self.reads(found)))


_SENTENCES = TEMPLATES.from_string(Path(__file__).with_suffix(".jinja").read_text(encoding="utf-8")).module


def _best_group_size(found: Found) -> dict[str, str]:
    found.rows("U9/best/printed", "refuted")
    found.rows("U9/best/corrected", "confirmed")
    law = (
        found.table("best_group")
        .dropna(subset="quantity")
        .pivot(index="problem", columns="quantity", values="optimum")
        .loc[list(LANGUAGE_MODEL)]
    )
    return {name: _listed(law[name], ".1f") for name in ("corrected", "printed", "remainder")}


def _efficiency(found: Found) -> dict[str, str]:
    problems = found.rows("efficiency/larger groups")["problem"]
    table = found.table("efficiency").query("quantity == 'efficiency'")
    wide = table.pivot(index="group_size", columns=["estimator", "problem"], values="estimate")
    own = {name: wide[name][problems] for name in ("rloo", "grpo")}
    sizes = {name: _range(own[name].idxmax(), ".0f") for name in own}
    gain = (100.0 * (own["grpo"].max() / own["rloo"].max() - 1.0)).round()
    return sizes | {"gain": _range(gain, ".0f").replace("-", "\u2212")}


def _assumption(found: Found) -> dict[str, str]:
    found.rows("U6/assumption", "refuted", problems=LANGUAGE_MODEL)
    rows = found.rows("U6/assumption", "confirmed", "refuted")
    refuted = int((rows["verdict"] == "refuted").sum())
    table = found.table("baselines").groupby("problem")[["correlation_mean", "break_even"]].first().loc[list(LANGUAGE_MODEL)]
    if table["break_even"].min() < 2.0:
        raise NotSaidError("the group's mean has the smaller error at every group size somewhere")
    return {
        "failed": f"{refuted} of {len(rows)}",
        "correlation": _range(table["correlation_mean"], ".2f"),
        "sizes": _listed(np.floor(table["break_even"]), "g"),
    }


def _near_the_oracle(found: Found) -> dict[str, str]:
    near, far = found.rows("U6/near, G=8"), found.rows("U6/same, G=32", "reproduced here")
    of_near, of_far = (rows.loc[rows["problem"].str.contains(", success "), "estimate"] for rows in (near, far))
    if of_near.empty or of_far.empty:
        raise NotSaidError("no head that was trained further was looked at")
    return {"near": _range(100.0 * of_near, ".0f"), "far": f"{100.0 * of_far.max():.1f}"}


def _limit_law(found: Found) -> dict[str, str]:
    printed = found.rows("U11/printed", "refuted")
    corrected = found.rows("U11/corrected", "confirmed", "inconclusive")
    confirmed = int((corrected["verdict"] == "confirmed").sum())
    return {
        "refuted": _all(len(printed)),
        "printed": _range(printed["estimate"], ".2f"),
        "corrected": f"{corrected['estimate'].max():.3f}",
        "tried": str(len(corrected)),
        "confirmed": str(confirmed or "none"),
    }


def _division(found: Found) -> dict[str, str]:
    found.rows("division/pays")
    table = found.table("race").query("quantity == 'plain less' and arm == 'divided' and contest == 'Adam'")
    points = -100.0 * table.set_index("family")["estimate"]
    if set(points.index) != {"head", "random", "made up"}:
        raise NotSaidError("the study race ran in too few settings")
    ranges = {
        family.replace(" ", "_"): _range(points[[family]], ".1f").replace("-", "\u2212") for family in points.index.unique()
    }
    counts = {"rises": int((points >= 1.0).sum()), "falls": int((points <= -1.0).sum()), "tried": points.size}
    return ranges | {name: str(count) for name, count in counts.items()}


def _signs(found: Found) -> dict[str, str]:
    printed = [found.rows(f"{name}/printed", "refuted")["estimate"].max() for name in ("T1", "T2")]
    corrected = [found.rows(f"{name}/corrected", "confirmed")["estimate"].abs().max() for name in ("T1", "T2")]
    return {"printed": f"{max(printed):.0f}", "corrected": _power(max(corrected))}


def _whose_gradient(found: Found) -> dict[str, str]:
    found.rows("T6/corrected", "confirmed")
    found.rows("T6/printed", "refuted")
    rows = found.rows("T6/most")
    horizons = rows["problem"].str.extract(r"T = (\d+)")[0].astype(int)
    short, long = min(set(horizons) - {1}), horizons.max()
    shares = [_range(100.0 * rows.loc[horizons == horizon, "estimate"], ".0f") for horizon in (short, long)]
    return {"short": str(short), "long": str(long), "of_short": shares[0], "of_long": shares[1]}


def _divided_sum(found: Found) -> dict[str, str]:
    ratios = found.rows("N6/printed", "refuted")["estimate"]
    found.rows("N6/weighted", "confirmed")
    return {"factors": _range(ratios, ".1f")}


def _kl_gradient(found: Found) -> dict[str, str]:
    found.rows("U17/printed", "refuted")
    cosines = [_facts(text)["cosine with it"] for text in found.rows("U17/printed mean", "refuted")["facts"]]
    if max(cosines) >= 0.0:
        raise NotSaidError("the printed gradient points away on some problems only")
    return {"cosine": signed(max(cosines)), "problems": _all(len(cosines))}


def _finite_groups(found: Found) -> dict[str, str]:
    found.rows("U16/printed", "refuted")
    rows = found.rows("U16/corrected", "confirmed")
    table = pd.DataFrame([_facts(text) for text in rows["facts"]])
    printed = table["success at the printed maximiser"]
    alone = {
        "groups": "with groups of this size alone",
        "penalty": "with the penalty that is descended alone",
        "both": "success at the corrected one",
    }
    return {name: f"{100.0 * (1.0 - table[fact] / printed).max():.1f}" for name, fact in alone.items()}


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
