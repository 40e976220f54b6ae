"""U8: the lemma on sequences behind the bound, exact.

Lemma 14, on which Lemma 6 rests, bounds every sequence that keeps its hypotheses. The largest values that they allow a sequence
are computed and compared with the bound, over a grid of constants. In the control n_0 is half of what it should be.
"""

from itertools import product

import numpy as np

from grpo_theory.harness import check
from grpo_theory.theory.suboptimality import first_index, largest_sequence, printed_first_index, sequence_bound
from simulations.statements import stated

A = (1.25, 2.0, 4.0, 10.0, 100.0)
B_OVER_LEAST = (0.01, 0.25, 1.0, 4.0)
"""B in units of A^2/4, from which on the bracket 1 - A/n + B/n^2 is never negative; in Lemma 6 it is L/mu of them."""
C_OVER_HIGHEST = (0.1, 4.0, 1000.0)
EPSILONS = (0.25, 1.0, 4.0)
LENGTH = 4096


@check(*stated("U8/lemma/printed", "U8/lemma/used", "U8/lemma/corrected"), broken={"part": 2}, setting="all sequences")
def sequences(part=1):
    """The highest ratio of what a sequence can reach to the bound: as printed, as Lemma 6 uses it, and as corrected.

    Only sequences count that keep all hypotheses, a_{n+1} >= 0 included, for ever. Broken: n_0 is halved.
    """
    printed: list[float] = []
    corrected: list[float] = []
    n, used = np.arange(1, LENGTH + 1), []
    for a, share, c, epsilon in product(A, B_OVER_LEAST, C_OVER_HIGHEST, EPSILONS):
        b = share * a**2 / 4.0
        reached = largest_sequence(a, b, c, 1.0, LENGTH)
        for ratios, first in ((printed, printed_first_index), (corrected, first_index)):
            start = max(1, first(a, b, epsilon) // part)
            ratios.append((reached / sequence_bound(a, c, 1.0, start, n, epsilon)).max())
        used += printed[-1:] * (share >= 1.0)
    return {"U8/lemma/printed": (printed, 1.0), "U8/lemma/used": (used, 1.0), "U8/lemma/corrected": (corrected, 1.0)}
