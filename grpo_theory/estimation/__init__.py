"""Estimators of the policy gradient: advantage kernels, importance ratios, clips, aggregation, KL terms, and compositions."""

from grpo_theory.estimation import named as named
from grpo_theory.estimation import registry as registry
from grpo_theory.estimation import trainers as trainers
from grpo_theory.estimation.advantage import Advantage, Memory
from grpo_theory.estimation.allocation import AllocationRule, allocation_rules
from grpo_theory.estimation.kernel import Batch, SourceFile
from grpo_theory.estimation.parts import (
    AGGREGATIONS,
    CLIPS,
    CREDITS,
    KL_TERMS,
    MISMATCHES,
    RATIOS,
    Aggregation,
    Clip,
    Credit,
    KLTerm,
    Mismatch,
    Ratio,
)
from grpo_theory.estimation.registry import Estimator, apart, compose, estimator, estimators, find, make_estimator

__all__ = ["AGGREGATIONS", "CLIPS", "CREDITS", "KL_TERMS", "MISMATCHES", "RATIOS", "Advantage", "Aggregation"]
__all__ += ["AllocationRule", "Batch", "Clip", "Credit", "Estimator", "KLTerm", "Memory", "Mismatch", "Ratio"]
__all__ += ["SourceFile", "allocation_rules", "apart", "compose", "estimator", "estimators", "find", "make_estimator"]
__dir__ = __all__.copy

registry.SHIPPED.update(registry.estimators())
