"""An advice as dictionaries, lists, strings, finite numbers and None: what `--json` writes, as its records hold it."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from grpo_theory.page.advice.screen import answer
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.run_advice import RunAdvice

FORMAT = 4
"""Raised when a key changes its meaning or goes."""
OF_CHOICE = ("group_size", "batch_size", "low", "high", "bounded", "risk", "group_sizes", "batch_sizes", "loss", "candidates")
OF_SCORES = ("real_optimum", "signal", "prompts_needed", "prompts", "dropped")
OF_RUN = ("group_size", "keep", "each", "rule", "extrapolated", "judged", "expected_losses", "candidates", "worth")
"""What is told of the choice for a step, of what else scores tell, and of a run beside its fields."""


def to_json(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as JSON; the keys are those of `to_dict`.

    Examples
    --------
    >>> import json, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_json(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> json.loads(text)["format"]
    4
    """
    return json.dumps(to_dict(advice, run), indent=2, allow_nan=False) + "\n"


def to_dict(advice: Advice, run: RunAdvice | None = None) -> dict[str, Any]:
    """Convert an advice to a dictionary; unknown or infinite values, and those not asked for, are None.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)
    >>> gt.page.to_dict(advice)["rewards"]["prompts"]
    129
    """
    scores, rewards = advice.scores, advice.rewards
    step = None
    if scores is not None:
        step = {name: getattr(scores.choice, name) for name in OF_CHOICE} | {name: getattr(scores, name) for name in OF_SCORES}
        step |= {"enough": advice.enough, "heavy_tailed": advice.heavy_tailed, "rivals": scores.recommended.rivals}
        step |= {"others": scores.by_efficiency.others, "refusal": scores.by_efficiency.refusal}
    mean = {"mean": rewards.sample.mean_reward, "smallest_group": rewards.group_sizes[0], "largest_group": rewards.group_sizes[1]}
    return {
        "format": FORMAT,
        "recommendation": plain(answer(advice, run)),
        **{
            name: plain(getattr(advice, name)) for name in ("group_size", "estimator", "baseline", "level", "tolerance", "limits")
        },
        "step": plain(step),
        "missing": plain(advice.missing),
        "run": None if run is None else plain(run) | plain({name: getattr(run, name) for name in OF_RUN}),
        "rewards": plain(rewards) | plain(rewards.sample) | plain(mean),
        "notes": [*advice.reading, *advice.notes],
    }


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: records by their fields, arrays as lists, and None for what is not finite."""
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if not callable(part)}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
