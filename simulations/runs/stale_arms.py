"""What is done about the ratio where rollouts are stale: GRPO's update with one part of it changed."""

from collections.abc import Mapping

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.ratio import CLIPS, Clip, Ratio
from simulations.sequence.parts import composed

CAP = 2.0
"""At which ratios are truncated: the cap that TRL and verl set for importance weights on the policy that sampled."""
FARTHEST = 5.0
"""What the relaxed clip lets pass, in either direction.  The paper's abstract gives no number; a clip of 0.2 passes 1.25."""


def veto(ratios, length, positive, widths, weights):
    """Weight r up to 1 + high if A > 0. If A < 0, weight r until a token's r leaves [1 - low, 1 + high], and 0 from there on."""
    for i in range(ratios.shape[1]):
        kept = True
        for t in range(length):
            below = ratios[t, i] <= 1.0 + widths[1]
            kept = below and (positive or (kept and ratios[t, i] >= 1.0 - widths[0]))
            weights[t, i] = ratios[t, i] if kept else 0.0


def minus_one(log_ratios, length, ratios):
    """Weight -1: it descends."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            ratios[t, i] = -1.0


def _grpo(ratio: str | Ratio, clip: str | Clip = "none") -> Estimator:
    return composed("grpo", ratio, clip, "own length")


ARMS: Mapping[str, Estimator] = {
    "none": _grpo("none"),
    "clip": _grpo("token", "by sign"),
    "truncated": _grpo("trajectory", CLIPS["cap"].with_widths(0.0, CAP - 1.0)),
    "veto": _grpo("token", Clip("veto", veto, 1.0 - 1.0 / FARTHEST, FARTHEST - 1.0)),
    "descends": _grpo(Ratio("minus one", minus_one)),
}
"""The arms are no ratio, GRPO's clipped token ratios, the response's ratio, truncated, and mu-GRPO's relaxed clip. The relaxed
clip has its veto on responses of negative advantage, as its abstract has them. The last arm is broken. On policy all the others
are one estimator."""
