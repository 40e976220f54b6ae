"""The arms of the studies of how far training by clipped ratios drifts from its gradient."""

from simulations.sequence.parts import composed

ARMS = {
    "clip": composed("rloo", "token", "by sign"),
    "none": composed("rloo", "none"),
    "trajectory": composed("rloo", "trajectory", "upper only"),
}
"""Leave-one-out advantages, undivided, tokens added up; clips at 0.8 and 1.2."""
LOOKED = ARMS | {"ratio": composed("rloo", "token")}
"""Whose mean updates are looked at along the runs of each arm: that of the token ratio without clip, too."""
