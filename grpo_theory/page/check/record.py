"""A trainer's check as dictionaries, lists, strings, finite numbers and None: what `check --json` writes."""

import json
from dataclasses import asdict
from typing import Any

from grpo_theory.checks import TrainerCheck
from grpo_theory.checks.conventions import Fit
from grpo_theory.page.advice.record import plain

FORMAT = 1
"""Raised when a key changes its meaning or goes."""


def check_to_json(check: TrainerCheck) -> str:
    """Format a trainer check as JSON; the keys are those of `check_to_dict`.

    Examples
    --------
    >>> import csv, json, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     text = gt.page.check_to_json(gt.checks.check_log(path))
    >>> json.loads(text)["format"]
    1
    """
    return json.dumps(check_to_dict(check), indent=2, allow_nan=False) + "\n"


def check_to_dict(check: TrainerCheck) -> dict[str, Any]:
    """Convert a trainer check to a dictionary; unknown or infinite values are None.  docs/trainer_checks.md lists the keys.

    Examples
    --------
    >>> import csv, tempfile, grpo_theory as gt
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.csv"
    ...     with path.open("w", newline="") as file:
    ...         csv.writer(file).writerows([("prompt_id", "reward"), *[(n // 4, n % 2) for n in range(12)]])
    ...     found = gt.page.check_to_dict(gt.checks.check_log(path))
    >>> found["responses"], found["groups"], found["remarks"]
    (12, 3, [])
    """
    found, regrouping = check.contradictions, check.regrouping
    return plain(
        {
            "format": FORMAT,
            "columns": dict(check.log.columns),
            "responses": check.log.findings.kept,
            "groups": check.log.findings.groups,
            "steps": list(check.log.findings.steps),
            "clip": list(check.clip),
            "cap": check.cap,
            "followed": check.followed if check.log.advantages is not None else None,
            "conventions": [_fit(one) for one in check.fits],
            "negated": [_fit(one) for one in check.negated],
            "regrouping": None
            if regrouping is None
            else {"name": regrouping.name, "size": regrouping.size, "conventions": [_fit(one) for one in regrouping.fits]},
            "contradictions": None
            if found is None
            else {
                "total": found.total,
                "judged": found.judged,
                "equal_rewards_unequal_advantages": found.unequal,
                "explanations": found.counts,
                "prompts": [str(check.log.rollouts.prompts[group]) for group in found.groups],
            },
            "loss": None if check.loss is None else asdict(check.loss),
            "ratios": {
                one.name: {**asdict(one), "capped": {f"{cap:g}": x for cap, x in one.capped.items()}} for one in check.ratios
            },
            "direction": None if check.direction is None else asdict(check.direction),
            "missing": check.missing,
            "remarks": list(check.log.remarks),
        }
    )


def _fit(one: Fit) -> dict[str, Any]:
    advantage = one.candidate.estimator.advantage
    return {
        "names": list(one.candidate.names),
        "kernel": advantage.name,
        "parameters": dict(advantage.parameters),
        "share": one.share,
        "telling_groups": int(one.telling.sum()),
    }
