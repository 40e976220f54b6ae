"""Measures the yardsticks of the simulators: ratios in one run, on one machine, of the same numbers computed.

One worker means one thread: BLAS gets one, too, and is told so before NumPy is imported.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
