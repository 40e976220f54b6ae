"""N11: wide networks keep the cosines of a linear policy.  How fast the difference falls with the width, exact.

The network and the linear policy with the features of its start climb the exact gradient for as many updates. The theorem of
docs/derivations.md, section 5.1, is about copies of a few units. Here all units are drawn, in pairs, and the logits stay even in
1/sqrt(H). In the control the linear policy has the features of another start, which differ by a sum of random terms, of order
1/sqrt(H).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.evidence import Comparison
from grpo_theory.evidence.slope import log_log_slope
from grpo_theory.harness.study import Cell, Settings
from simulations.normalisation.networks import BOTH, ascent, linearised, network_problem
from simulations.statements import stated

WIDE = stated("N11/width")

WIDTHS = (64, 128, 256, 512, 1024)
UPDATES, QUICK_UPDATES = 20, 10
PROBLEMS = (21, 22)


def cells(quick: bool) -> list[Cell]:
    """One cell for each draw of inputs."""
    widths, updates = list(WIDTHS[: 3 if quick else None]), QUICK_UPDATES if quick else UPDATES
    return [Cell({"seed": seed, "widths": widths, "updates": updates}) for seed in PROBLEMS[: 1 if quick else None]]


def cosines(width: int, settings: Settings, draw: int, learns: bool) -> Array:
    """Return the cosines of the prompts' gradients after the updates, (M (M - 1)/2,)."""
    network = network_problem(width, settings["seed"], draw, BOTH)
    *_, last = ascent(network if learns else linearised(network), 0.0, settings["updates"])
    return last.cosines


def compare(settings: Settings) -> Iterator[Comparison | dict[str, Any]]:
    """Yield root mean square differences of cosines by width, and their rate."""
    widths, seed = settings["widths"], settings["seed"]
    apart: dict[str, list[float]] = {"own start": [], "other start": []}
    for width in widths:
        learned = cosines(width, settings, 0, learns=True)
        for draw, name in enumerate(apart):
            difference = float(np.sqrt(((learned - cosines(width, settings, draw, learns=False)) ** 2).mean()))
            apart[name].append(difference)
            yield {"width": width, "inputs": seed, "quantity": f"difference, {name}", "estimate": difference}
    own, other = (log_log_slope(np.array(widths, float), np.array(values))[0] for values in apart.values())
    yield WIDE.compare(f"{settings['updates']} updates, inputs {seed}", own, -1.0, broken=other)
