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
    """Return `check_to_dict` as JSON."""
    return json.dumps(check_to_dict(check), indent=2, allow_nan=False) + "\n"


def check_to_dict(check: TrainerCheck) -> dict[str, Any]:
    """Return everything that a check says; what is unknown or not finite is None.  docs/trainer_checks.md lists the keys."""
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
