"""Allocation rules beside the package's: what separates a rule from what it must know, and rules that are known to be wrong."""

import grpo_theory as gt
from grpo_theory.compiler import function_value
from grpo_theory.estimation import COSTS

VALUE, VARIANCE, START = 0, 1, 4
"""Columns of what is known of a prompt."""
LEAST = 1e-12


@function_value(COSTS)
def fill_printed_at_start(known, costs):
    """The printed error with the success rate at the start: what is known without estimating anything anew."""
    for b in range(known.shape[0]):
        variance = known[b, START] * (1.0 - known[b, START])
        costs[b, 0], costs[b, 1] = variance, variance


@function_value(COSTS)
def fill_inverse_now(known, costs):
    """Sizes as 1/p with the success rate of the policy that samples."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = 1.0 / max(known[b, VALUE], LEAST) ** 2, 0.0


@function_value(COSTS)
def fill_upside_down(known, costs):
    """Broken: most responses go to the prompts whose rewards vary least."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = 1.0 / max(known[b, VARIANCE], LEAST), 0.0


@function_value(COSTS)
def fill_steeply(known, costs):
    """Broken: sizes as 1/p^2."""
    for b in range(known.shape[0]):
        costs[b, 0], costs[b, 1] = 1.0 / max(known[b, START], LEAST) ** 4, 0.0


VIP_AT_START = gt.AllocationRule("vip, start", fill_printed_at_start, wants_success=True)
SGPO_NOW = gt.AllocationRule("sgpo, now", fill_inverse_now, wants_success=True, weighted=False)
UPSIDE_DOWN = gt.AllocationRule("upside down", fill_upside_down)
STEEPLY = gt.AllocationRule("steeply", fill_steeply, wants_success=True, weighted=False)
