from .coverages import width_by_coverage as width_by_coverage
from .coverages import zip_plot as zip_plot
from .group_sizes import efficiency as efficiency
from .group_sizes import plan as plan
from .runs import training as training
