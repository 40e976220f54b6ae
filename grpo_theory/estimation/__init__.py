"""Estimators of the policy gradient: advantage kernels, importance ratios, clips, aggregation, KL terms, and compositions."""

from grpo_theory.estimation import named as named
from grpo_theory.estimation import registry as registry
from grpo_theory.estimation import trainers as trainers
from grpo_theory.estimation.advantage import Advantage as Advantage
from grpo_theory.estimation.allocation import AllocationRule as AllocationRule
from grpo_theory.estimation.allocation import allocation_rules as allocation_rules
from grpo_theory.estimation.kernel import Batch as Batch
from grpo_theory.estimation.kernel import SourceFile as SourceFile
from grpo_theory.estimation.parts import AGGREGATIONS as AGGREGATIONS
from grpo_theory.estimation.parts import CLIPS as CLIPS
from grpo_theory.estimation.parts import CREDITS as CREDITS
from grpo_theory.estimation.parts import KL_TERMS as KL_TERMS
from grpo_theory.estimation.parts import MISMATCHES as MISMATCHES
from grpo_theory.estimation.parts import RATIOS as RATIOS
from grpo_theory.estimation.parts import Aggregation as Aggregation
from grpo_theory.estimation.parts import Clip as Clip
from grpo_theory.estimation.parts import Credit as Credit
from grpo_theory.estimation.parts import KLTerm as KLTerm
from grpo_theory.estimation.parts import Mismatch as Mismatch
from grpo_theory.estimation.parts import Ratio as Ratio
from grpo_theory.estimation.registry import Estimator as Estimator
from grpo_theory.estimation.registry import compose as compose
from grpo_theory.estimation.registry import estimator as estimator
from grpo_theory.estimation.registry import estimators as estimators
from grpo_theory.estimation.registry import find as find
from grpo_theory.estimation.registry import make_estimator as make_estimator

registry.keep_shipped()
