"""What is computed from a group: kernels, the registry, the named estimators."""

from grpo_theory.estimator import named as named
from grpo_theory.estimator.kernel import Batch as Batch
from grpo_theory.estimator.registry import Estimator as Estimator
from grpo_theory.estimator.registry import estimator as estimator
from grpo_theory.estimator.registry import estimators as estimators
from grpo_theory.estimator.registry import find as find
