"""Verdicts on a whole report: all intervals hold together at the family error."""

from collections.abc import Sequence

import pandas as pd

from grpo_theory.evidence.claim import Claim, Statement
from grpo_theory.evidence.rules import CONFIRMED, KINDS, NO_POWER, NOT_REPRODUCED, REFUTED, REPRODUCED

FAMILY_ERROR = 1e-3

COLUMNS = (
    "id",
    "whose",
    "source",
    "statement",
    "kind",
    "problem",
    "verdict",
    "control",
    "power",
    "estimate",
    "low",
    "high",
    "prediction",
    "standard_error",
    "margin",
    "replications",
    "needed",
    "control_estimate",
    "control_prediction",
    "facts",
)


def judge(claims: Sequence[Claim], family_error: float = FAMILY_ERROR) -> pd.DataFrame:
    """Judge all claims of a report and their controls, with simultaneous confidence intervals.

    Every claim and every control that rests on sampling gets an equal share of the family error (Bonferroni).

    Parameters
    ----------
    claims : sequence of Claim
    family_error : float, default 1e-3
        The probability, at most, that any interval of the report misses its target.

    Returns
    -------
    DataFrame
        One row per claim.  The column ``whose`` says whether a paper states it.  The column ``control`` is the verdict on the
        negative control, and ``power`` says whether the control was refuted.  What would be confirmed has the verdict "no power"
        if the control was not refuted.

        What a paper measured on its own model is "reproduced here" or "not reproduced here".  Its control is refuted all the
        same, because the control is known to be wrong.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.evidence import judge
    >>> from grpo_theory.evidence.reading import exact
    >>> statement = gt.Statement("X1", "example", "two and two are four", "identity")
    >>> table = judge([statement.claim("integers", exact(2 + 2, 4.0), exact(2 + 3, 4.0))])
    >>> table[["id", "verdict", "control"]].values.tolist()
    [['X1', 'confirmed', 'refuted']]
    """
    if not 0.0 < family_error < 1.0:
        raise ValueError(f"family_error must lie in (0, 1), got {family_error}")
    unknown = sorted({claim.statement.kind for claim in claims} - set(KINDS))
    if unknown:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {unknown[0]!r}")
    sampled = sum(one.replications > 0 for claim in claims for one in (claim.evidence, claim.control))
    level = family_error / max(sampled, 1)
    rows = []
    for claim in claims:
        rule = KINDS[claim.statement.kind]
        judgement, control = (rule(evidence, level / evidence.comparisons) for evidence in (claim.evidence, claim.control))
        has_power = control.verdict == REFUTED
        rows.append(
            (
                claim.statement.id,
                claim.statement.whose,
                claim.statement.source,
                claim.statement.text,
                claim.statement.kind,
                claim.setting,
                _words(claim.statement, judgement.verdict) if has_power or judgement.verdict != CONFIRMED else NO_POWER,
                control.verdict,
                has_power,
                claim.evidence.estimate,
                judgement.low,
                judgement.high,
                claim.evidence.prediction,
                claim.evidence.standard_error,
                claim.evidence.margin,
                claim.evidence.replications,
                judgement.needed,
                claim.control.estimate,
                claim.control.prediction,
                "; ".join(f"{name} = {value:.4g}" for name, value in claim.facts.items()),
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _words(statement: Statement, verdict: str) -> str:
    """Return what a verdict on a statement is called."""
    return {CONFIRMED: REPRODUCED, REFUTED: NOT_REPRODUCED}.get(verdict, verdict) if statement.measured else verdict
