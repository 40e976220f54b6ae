"""What the trainers compute, by library and version, as named estimators: docs/trainers.md has the table.

A name of a trainer's function (trl_grpo, verl_opo) stands for its advantages, one that ends in _loss for its loss off policy.
"""

from collections.abc import Mapping
from types import MappingProxyType

from grpo_theory.estimation.registry import Estimator
from grpo_theory.estimation.trainers import james_stein, nemo_rl, openrlhf, prime_rl, rllm, trl, verl

CONVENTIONS: Mapping[str, Estimator] = MappingProxyType(
    {
        found.name: found
        for module in (trl, verl, openrlhf, nemo_rl, rllm, prime_rl, james_stein)
        for found in vars(module).values()
        if isinstance(found, Estimator)
    }
)
"""Every trainer's estimators, name -> `Estimator`, library by library."""
