"""The papers' claims, one file for each study: settings -> table of (prediction, estimate, standard error) -> verdict.

The runner's threads are its workers: BLAS gets one each, and is told so before NumPy is imported.  With more, the many products
of small matrices in an interval take several times as long, and sums are rounded in another order.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

FAMILIES = ("U", "T", "N", "R", "P")
"""The beginnings of the papers' statements' ids, in the order of the catalogue; ours follow."""
