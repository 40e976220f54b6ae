"""Estimators of the policy gradient: advantage kernels, importance ratios, clips, aggregation, KL terms, and compositions.

``__init__.pyi`` lists what the subpackage offers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

from grpo_theory.estimation import named, registry, trainers  # noqa: E402, F401  # their estimators are registered

registry.SHIPPED.update(registry.estimators())
