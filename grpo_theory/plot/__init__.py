"""Pictures of results, drawn on axes of yours or new ones, which are returned: seaborn and matplotlib, to be changed at will."""

from grpo_theory.plot.coverages import width_by_coverage, zip_plot
from grpo_theory.plot.group_sizes import efficiency, plan
from grpo_theory.plot.runs import training

__all__ = ["efficiency", "plan", "training", "width_by_coverage", "zip_plot"]
__dir__ = __all__.copy
