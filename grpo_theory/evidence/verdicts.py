"""Verdicts on statements, each at an error of its own: whatever else is in the report, the verdict is the same."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from grpo_theory.evidence.claim import Claim
from grpo_theory.evidence.rules import (
    CONFIRMED,
    ESTIMATE,
    INCONCLUSIVE,
    KINDS,
    NO_POWER,
    NOT_REPRODUCED,
    REFUTATIONS,
    REFUTED,
    REPRODUCED,
    Judgement,
    enough,
    room,
)
from grpo_theory.validation import as_fraction

LEVEL = 1e-4
"""How probable it is, at most, that a wrong statement is confirmed in all its settings, or that a right one is refuted in one."""

_NAMES = """
id whose source statement kind problem verdict control power sound estimate low high outer_low outer_high prediction
standard_error margin replications needed control_estimate control_low control_high control_prediction facts
"""
COLUMNS = tuple(_NAMES.split())


def judge(claims: Sequence[Claim], level: float = LEVEL) -> pd.DataFrame:
    """Judge claims and their controls; a statement's verdicts depend on its own settings only.

    A statement that is wrong is wrong in one of its settings at least. To be confirmed everywhere it must be confirmed there.
    So confirming needs no correction for the number of settings: it is by limits at `level`. A statement that is right is right
    in all its settings, and each of them could be refuted by chance. So refuting is by limits at `level` divided by their number
    (Bonferroni). A report of K statements that rest on sampling has a wrong verdict with probability at most K times `level`.

    Parameters
    ----------
    claims : sequence of Claim
        With all settings of each statement.
    level : float, default 1e-4
        The probability, at most, that a wrong statement is confirmed, or a right one refuted.

    Returns
    -------
    DataFrame
        One row per claim.  The columns ``low`` and ``high`` are the limits by which it would be confirmed, ``outer_low`` and
        ``outer_high`` those by which it would be refuted.  The column ``whose`` says whether a paper states it.  The column
        ``control`` is the verdict on the negative control, and ``power`` says whether the control was refuted.  What would be
        confirmed has the verdict "no power" if the control was not refuted.  A refutation needs no such control.  The column
        ``sound`` is the verdict on what is known to hold, and empty where nothing is.  Where that is refuted too, the check
        refutes what is right, and the verdict is "no power" as well.

        What limits are too wide for is an "estimate only": not even the best outcome could have been confirmed with them.

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
    level = as_fraction("level", level)
    unknown = sorted({claim.statement.kind for claim in claims} - set(KINDS))
    if unknown:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {unknown[0]!r}")
    settings = Counter(claim.statement.id for claim in claims if claim.evidence.replications > 0)
    rows = []
    for claim in claims:
        one, own = claim.statement, claim.evidence
        rule, at = KINDS[one.kind], level / own.comparisons
        # Confirmed at alpha, refuted at alpha/m with m settings: either error has probability at most alpha (docs/derivations.md,
        # section 18).
        inner, outer = rule(own, at), rule(own, at / max(settings[one.id], 1))
        judgement = inner if inner.verdict == CONFIRMED else outer
        if judgement.verdict == INCONCLUSIVE:
            # Neither limits decide: told are the replications after which one of them would, or the best outcome could.
            most = room(one.kind, own)
            numbers = [limits.needed for limits in (inner, outer) if limits.verdict == INCONCLUSIVE and limits.needed]
            judgement = Judgement(INCONCLUSIVE, inner.low, inner.high, min(numbers, default=0))
            if inner.high - own.estimate > most:
                judgement = Judgement(ESTIMATE, inner.low, inner.high, enough(one.kind, own, at, most))
        control = rule(claim.control, level / claim.control.comparisons)
        has_power = control.verdict == REFUTED
        # Something that holds must not be refuted by limits that would refute the statement.
        sound = rule(claim.sound, at / max(settings[one.id], 1)).verdict if claim.sound else ""
        guarded = {CONFIRMED: has_power, REFUTED: sound != REFUTED}.get(judgement.verdict, True)
        said = {CONFIRMED: REPRODUCED, REFUTED: NOT_REPRODUCED} if one.measured else {}
        verdict = said.get(judgement.verdict, judgement.verdict) if guarded else NO_POWER
        limits = own.estimate, inner.low, inner.high, outer.low, outer.high
        against = own.prediction, own.standard_error, own.margin, own.replications, judgement.needed
        wrong = claim.control.estimate, control.low, control.high, claim.control.prediction
        facts = "; ".join(f"{name} = {value:.4g}" for name, value in claim.facts.items())
        stated = one.id, one.whose, one.source, one.text, one.kind, claim.setting
        rows.append((*stated, verdict, control.verdict, has_power, sound, *limits, *against, *wrong, facts))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def decided(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that say something: refutations, and of the others those whose negative control was refuted.

    Parameters
    ----------
    rows : DataFrame
        With the columns ``verdict`` and ``control``, as `judge` returns them.

    Examples
    --------
    >>> import pandas as pd
    >>> from grpo_theory.evidence import decided
    >>> rows = [("confirmed", "refuted"), ("no power", "inconclusive"), ("refuted", "confirmed")]
    >>> decided(pd.DataFrame(rows, columns=["verdict", "control"]))["verdict"].tolist()
    ['confirmed', 'refuted']
    """
    return rows[rows["verdict"].isin(REFUTATIONS) | ((rows["control"] == REFUTED) & (rows["verdict"] != NO_POWER))]
