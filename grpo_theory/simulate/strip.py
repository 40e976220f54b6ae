"""Strips: replications side by side, so that one instruction works on several of them.

Everything that belongs to a strip is an array whose last axis are its lanes, one for each replication: rows a constant distance
apart, which the compiler knows, because the number of lanes is the same for every problem and every shape of a batch.
"""

from grpo_theory.compiler.lanes import WIDTH

STRIP = 128
"""The replications of a strip."""

VECTORS = STRIP // WIDTH
"""The vectors of lanes of a strip."""
