"""What is studied: bandits, policies over responses or sequences, the penalty, and the problem that bundles them."""

from grpo_theory.problem import gallery
from grpo_theory.problem.chain import NotListedError, StateRewards, TokenChain, TokenTree, edge_table, response_table
from grpo_theory.problem.chain_point import ChainPoint
from grpo_theory.problem.logits import LogitMap, Paths, SmoothMap
from grpo_theory.problem.objective import Objective
from grpo_theory.problem.point import Moments, Point, Problem
from grpo_theory.problem.policy import KL, Bandit, LinearSoftmax, Policy, SoftmaxHead, TabularSoftmax
from grpo_theory.problem.two_layer import TwoLayerSoftmax

__all__ = ["KL", "Bandit", "ChainPoint", "LinearSoftmax", "LogitMap", "Moments", "NotListedError", "Objective", "Paths"]
__all__ += ["Point", "Policy", "Problem", "SmoothMap", "SoftmaxHead", "StateRewards", "TabularSoftmax", "TokenChain"]
__all__ += ["TokenTree", "TwoLayerSoftmax", "edge_table", "gallery", "response_table"]
__dir__ = __all__.copy
