"""Which limits keep a batch from having more prompts, or larger groups."""

from dataclasses import replace
from math import gcd
from typing import Any

from grpo_theory.plan.cost import LARGEST_GROUP, Limits

FREE: dict[str, Any] = {"max_group_size": LARGEST_GROUP, "max_responses": None, "min_prompts": 1, "multiple_of": 1}
"""What each limit is where it limits nothing."""


def keeps_out_prompts(limits: Limits, group_size: int) -> str:
    """Return the limit other than the budget that allows no more prompts at a group size, in words; empty if the budget is it."""
    step = limits.multiple_of // gcd(limits.multiple_of, group_size)
    more = (limits.prompts(group_size) + step) * group_size
    full = limits.max_responses is not None and more > limits.max_responses
    return (
        f"--max-responses {limits.max_responses:,}"
        if full and limits.cost(more // group_size, group_size) <= limits.budget
        else ""
    )


def keeps_out_groups(limits: Limits) -> str:
    """Return the limits each of which, were it not there, would allow groups larger than the largest, in words.

    Where no single one does it is the budget, with all limits together.
    """
    largest = int(limits.batches()[0][-1])
    names = []
    for name, free in FREE.items():
        value = getattr(limits, name)
        if value != free and int(replace(limits, **{name: free}).batches()[0][-1]) > largest:
            names.append(f"--{name.replace('_', '-')} {value:,}")
    return " and ".join(names) if names else "the budget"
