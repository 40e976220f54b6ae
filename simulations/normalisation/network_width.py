"""N11: wide networks keep the cosines of a linear policy.  How fast the difference falls with the width, exact.

The network and the linear policy with the features of its start climb the exact gradient for as many updates. The theorem of
docs/derivations.md, section 5.1, is about copies of a few units. Here all units are drawn, in pairs, and the logits stay even in
1/sqrt(H). In the control the linear policy has the features of another start, which differ by a sum of random terms, of order
1/sqrt(H).
"""

import numpy as np

from grpo_theory.evidence.reading import log_log_slope
from grpo_theory.harness import check
from simulations.normalisation.networks import ascent, linearised, network_problem, pair_cosines
from simulations.statements import stated

WIDE = stated("N11/width")

WIDTHS = (64, 128, 256, 512, 1024)
UPDATES, QUICK_UPDATES = 20, 10
PROBLEMS = (21, 22)


def cases(quick):
    """One case for each draw of inputs."""
    updates = QUICK_UPDATES if quick else UPDATES
    return [
        {"seed": seed, "widths": WIDTHS[: 3 if quick else None], "updates": updates} for seed in PROBLEMS[: 1 if quick else None]
    ]


@check(WIDE, cases=cases, broken={"draw": 1}, setting="{updates} updates, inputs {seed}")
def rate(seed, widths, updates, draw=0):
    """The rate of the difference of cosines in the width; the linear policy has the features of a draw of the start."""
    return log_log_slope(np.array(widths, float), np.array([difference(seed, width, updates, draw) for width in widths]))[0], -1.0


def difference(seed, width, updates, draw):
    """Return the root mean square difference of cosines after the updates."""
    networks = network_problem(width, seed), linearised(network_problem(width, seed, draw))
    own, linear = (pair_cosines([*ascent(problem, 0.0, updates)][-1].gradients) for problem in networks)
    return np.sqrt(((own - linear) ** 2).mean())
