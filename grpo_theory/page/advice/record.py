"""An advice as dictionaries, lists, strings, finite numbers and None: what `--json` writes."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from grpo_theory.intervals import Interval
from grpo_theory.page.advice.recommendation import would_change
from grpo_theory.page.advice.text import assumptions, rates_missing, size_missing
from grpo_theory.page.advice.whole_run import run_record
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.baseline_gain import Rival
from grpo_theory.plan.error_constants import vector
from grpo_theory.plan.estimator_advice import EstimatorAdvice
from grpo_theory.plan.expected_step import PromptWeights
from grpo_theory.plan.graded_weights import GradedWeights
from grpo_theory.plan.rewards_advice import RewardsAdvice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.plan.scores_advice import ScoresAdvice

FORMAT = 3
"""Raised when a key changes its meaning or goes."""


def to_json(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as JSON; the keys are those of `to_dict`.

    Examples
    --------
    >>> import json, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_json(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> json.loads(text)["format"]
    3
    """
    return json.dumps(to_dict(advice, run), indent=2, allow_nan=False) + "\n"


def to_dict(advice: Advice, run: RunAdvice | None = None) -> dict[str, Any]:
    """Convert an advice to a dictionary; unknown or infinite values, and those not asked for, are None.

    docs/planner.md lists the keys.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)
    >>> sorted(gt.page.to_dict(advice))[:3]
    ['assumptions', 'baseline', 'baselines']
    """
    scores = advice.scores
    return plain(
        {
            "format": FORMAT,
            "limits": asdict(advice.limits),
            "level": advice.level,
            "tolerance": advice.tolerance,
            "estimator": advice.estimator,
            "baseline": advice.baseline,
            **(dict.fromkeys(FROM_SCORES) if scores is None else _from_scores(advice, scores)),
            "no_group_size": size_missing(advice),
            "run": None if run is None else run_record(run),
            "learning_rate": _learning_rate(advice),
            **_from_rewards(advice.rewards),
            "would_change": would_change(advice).paragraphs,
            "assumptions": assumptions(advice).paragraphs,
            "notes": (*advice.reading, *advice.notes),
        }
    )


FROM_SCORES = (
    "recommendation",
    "confidence_set",
    "current",
    "group_sizes",
    "constants",
    "signal_to_noise",
    "baselines",
    "rivals",
    "by_efficiency",
    "scores",
)
"""The keys that are None for rewards alone."""


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: arrays as lists, and None for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def limits(interval: Interval) -> dict[str, Any]:
    """Return an interval's estimate and limits."""
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table of columns of one length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _from_scores(advice: Advice, scores: ScoresAdvice) -> dict[str, Any]:
    choice, table, pair = scores.choice, scores.baselines, scores.recommended.pair
    mse, unknown = scores.recommended.choice.mse if scores.own is None else None, np.full(choice.group_sizes.size, np.nan)
    sizes = _rows(
        {
            "group_size": choice.group_sizes,
            "batch_size": choice.batch_sizes,
            "mse": unknown if mse is None else mse.estimate,
            "mse_low": unknown if mse is None else mse.low,
            "mse_high": unknown if mse is None else mse.high,
            "efficiency": unknown if scores.own is None else scores.own.efficiency,
            "loss": choice.loss.estimate,
            "loss_low": choice.loss.low,
            "loss_high": choice.loss.high,
            "may_be_best": choice.candidates,
        }
    )
    constants = scores.leave_one_out.constants
    relative = table.relative
    baselines = {
        "name": table.names,
        "noise": table.noise,
        "relative": relative.estimate,
        "relative_low": relative.low,
        "relative_high": relative.high,
    }
    return {
        "recommendation": {
            "baseline": pair.name if scores.own is None else None,
            "share_of_all_prompts": pair.share if scores.own is None else None,
            "group_size": choice.group_size,
            "batch_size": choice.batch_size,
            "responses": choice.group_size * choice.batch_size,
            "cost": advice.limits.cost(choice.batch_size, choice.group_size),
            "before_rounding": scores.real_optimum if scores.own is None else None,
        },
        "confidence_set": {
            "low": choice.low,
            "high": choice.high,
            "bounded": choice.bounded,
            "largest_loss": choice.risk,
            "enough": advice.enough,
            "prompts_needed": scores.prompts_needed,
            "heavy_tailed": advice.heavy_tailed,
            "student_coverage": constants.student_coverage,
        },
        "current": next((row for row in sizes if row["group_size"] == advice.group_size), None),
        "group_sizes": sizes,
        "constants": _rows(
            {
                "name": ("c1", "c2", "c3"),
                "estimate": vector(constants.law),
                "standard_error": constants.standard_errors,
                "low": constants.low,
                "high": constants.high,
                "likely": vector(constants.likely),
            }
        ),
        "signal_to_noise": {"group_size": choice.group_size, **limits(scores.signal)},
        "baselines": {"group_size": table.group_size, "shrinkage": table.shrinkage, "table": _rows(baselines)},
        "rivals": [_rival(rival) for rival in scores.recommended.rivals] if scores.own is None else [],
        "by_efficiency": _by_efficiency(scores.by_efficiency),
        "scores": {"prompts": scores.prompts, "dropped": scores.dropped},
    }


def _by_efficiency(advice: EstimatorAdvice) -> dict[str, Any]:
    return {
        "planned": advice.choice is not None,
        "refusal": advice.refusal,
        "by_length": advice.by_length,
        "largest": advice.largest,
        "prompts": advice.prompts,
        "other_estimators": [
            {"name": one.name, "group_size": one.group_size, "batch_size": one.batch_size, "gain": limits(one.gain)}
            for one in advice.others
        ],
    }


def _rival(rival: Rival) -> dict[str, Any]:
    pair = rival.pair
    return {
        "baseline": pair.name,
        "share_of_all_prompts": pair.share,
        "group_size": pair.group_size,
        "batch_size": pair.batch_size,
        "better": rival.better,
        "gain": limits(rival.gain),
    }


def _learning_rate(advice: Advice) -> dict[str, Any] | None:
    factor = advice.rewards.learning_rate
    return None if factor is None else {**limits(factor.factor), "least": factor.least, "most": factor.most}


def _from_rewards(rewards: RewardsAdvice) -> dict[str, Any]:
    sample, shares, rates, weights = rewards.sample, rewards.uniform, rewards.rates, rewards.weights
    uniform = {
        "group_size": shares.group_sizes,
        "share": shares.interval.estimate,
        "low": shares.interval.low,
        "high": shares.interval.high,
        "measured": shares.measured,
    }
    return {
        "uniform_groups": _rows(uniform),
        "rewards": {
            "prompts": sample.prompts,
            "responses": sample.responses,
            "smallest_group": rewards.group_sizes[0],
            "largest_group": rewards.group_sizes[1],
            "mean": limits(sample.mean_reward),
            "mixed_prompts": sample.mixed_prompts,
            "mixed_responses": sample.mixed_responses,
            "effective_responses": sample.effective_responses,
            "missing": rates_missing(rewards),
        },
        "evaluations": [asdict(one) for one in rewards.evaluations],
        "success_rates": None if rates is None else {"rates": rates.atoms, "shares": rates.weights},
        "prompt_weights": None if weights is None else _prompt_weights(weights),
    }


def _prompt_weights(weights: PromptWeights | GradedWeights) -> dict[str, Any]:
    """Return the shares of prompts; of graded rewards without a weight h'(p), which needs success and failure."""
    graded = isinstance(weights, GradedWeights)
    return {
        "group_size": weights.group_size,
        "scale": None if isinstance(weights, GradedWeights) else limits(weights.scale),
        "hard_middling_easy": None if isinstance(weights, GradedWeights) else limits(weights.shares),
        "hard_middling_easy_of_step": limits(weights.step_shares),
        "hard_middling_easy_prompts": limits(weights.prompts),
        "graded": graded,
    }
