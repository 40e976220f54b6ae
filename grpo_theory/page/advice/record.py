"""An advice as dictionaries, lists, strings, finite numbers and None: what `--json` writes, as its records hold it."""

import json
from typing import Any

from grpo_theory.page.advice.screen import answer
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.user_text import json_value

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
        "recommendation": json_value(answer(advice, run)),
        **{
            name: json_value(getattr(advice, name))
            for name in ("group_size", "estimator", "baseline", "level", "tolerance", "limits")
        },
        "step": json_value(step),
        "missing": json_value(advice.missing),
        "run": None if run is None else json_value(run) | json_value({name: getattr(run, name) for name in OF_RUN}),
        "rewards": json_value(rewards) | json_value(rewards.sample) | json_value(mean),
        "notes": [*advice.reading, *advice.notes],
    }
