"""The arms of the studies of how far training by clipped ratios drifts from its gradient."""

from simulations.kernels import kernel_at
from simulations.sequence.parts import composed

SEEN = {
    "clip": composed("rloo", "token", "by sign"),
    "none": composed("rloo", "none"),
    "trajectory": composed("rloo", "trajectory", "upper only"),
}
"""Leave-one-out advantages, undivided, tokens added up; clips at 0.8 and 1.2."""
LOOKED = SEEN | {"ratio": composed("rloo", "token")}
"""Whose mean updates are looked at along the runs of each arm: that of the token ratio without clip, too."""
ARMS = SEEN | {"broken": kernel_at("turned_mean", 1.0, "descends")}
"""Whose runs are trained; the broken arm descends."""
