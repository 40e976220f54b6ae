"""U8: the lemma on sequences behind the bound, exact.

Lemma 14, on which Lemma 6 rests, bounds every sequence that keeps its hypotheses. The largest values that they allow a sequence
are computed and compared with the bound, over a grid of constants. In the control the bound starts at n_0 = 1.
"""

from collections.abc import Iterator

import numpy as np

from grpo_theory.evidence import Comparison
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Settings
from grpo_theory.theory.bounds import first_index, largest_sequence, printed_first_index, sequence_bound
from simulations.statements import stated

PRINTED, USED, CORRECTED = stated("U8/lemma/printed", "U8/lemma/used", "U8/lemma/corrected")

A = (1.25, 2.0, 4.0, 10.0, 100.0)
B_OVER_LEAST = (0.01, 0.25, 1.0, 4.0)
"""B in units of A^2/4, from which on the bracket 1 - A/n + B/n^2 is never negative; in Lemma 6 it is L/mu of them."""
C_OVER_HIGHEST = (0.1, 4.0, 1000.0)
EPSILONS = (0.25, 1.0, 4.0)
LENGTH = 4096


def ratios(a: float, b: float, c: float, epsilon: float) -> dict[str, float]:
    """Return the highest ratio of what a sequence can reach to the bound, for n_0 as printed, as corrected, and of 1.

    Only sequences count that keep all hypotheses, a_{n+1} >= 0 included, for ever.
    """
    n = np.arange(1, LENGTH + 1)
    reached = largest_sequence(a, b, c, 1.0, LENGTH)
    starts = {"printed": printed_first_index(a, b, epsilon), "corrected": first_index(a, b, epsilon), "broken": 1}
    return {name: float((reached / sequence_bound(a, c, 1.0, start, n, epsilon)).max()) for name, start in starts.items()}


def compare(settings: Settings) -> Iterator[Comparison]:
    """Yield the worst of the bound as printed, as printed where Lemma 6 uses it, and as corrected."""
    grid = [(a, share, c, epsilon) for a in A for share in B_OVER_LEAST for c in C_OVER_HIGHEST for epsilon in EPSILONS]
    all_of = [(share, ratios(a, share * a**2 / 4.0, c, epsilon)) for a, share, c, epsilon in grid]
    used = [ratio for share, ratio in all_of if share >= 1.0]
    every = [ratio for _, ratio in all_of]
    for statement, over, start in ((PRINTED, every, "printed"), (USED, used, "printed"), (CORRECTED, every, "corrected")):
        worst, broken = (largest([ratio[name] for ratio in over]) for name in (start, "broken"))
        yield statement.compare("all sequences", worst, 1.0, broken=broken)
