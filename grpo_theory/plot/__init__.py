"""Pictures of results, drawn on axes of yours or new ones, which are returned: seaborn and matplotlib, to be changed at will."""

from grpo_theory.plot.coverages import width_by_coverage as width_by_coverage
from grpo_theory.plot.coverages import zip_plot as zip_plot
from grpo_theory.plot.group_sizes import efficiency as efficiency
from grpo_theory.plot.group_sizes import plan as plan
from grpo_theory.plot.runs import training as training
