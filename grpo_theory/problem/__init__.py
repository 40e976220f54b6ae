"""What is studied: bandits, policies over responses or sequences, the penalty, and the problem that bundles them."""

from grpo_theory.problem import gallery as gallery
from grpo_theory.problem.chain import TokenChain as TokenChain
from grpo_theory.problem.chain_point import ChainPoint as ChainPoint
from grpo_theory.problem.logits import LogitMap as LogitMap
from grpo_theory.problem.logits import Paths as Paths
from grpo_theory.problem.logits import SmoothMap as SmoothMap
from grpo_theory.problem.objectives import Objective as Objective
from grpo_theory.problem.point import Moments as Moments
from grpo_theory.problem.point import Point as Point
from grpo_theory.problem.policy import KL as KL
from grpo_theory.problem.policy import Bandit as Bandit
from grpo_theory.problem.policy import LinearSoftmax as LinearSoftmax
from grpo_theory.problem.policy import NotListedError as NotListedError
from grpo_theory.problem.policy import Policy as Policy
from grpo_theory.problem.policy import SoftmaxHead as SoftmaxHead
from grpo_theory.problem.policy import StateRewards as StateRewards
from grpo_theory.problem.policy import TabularSoftmax as TabularSoftmax
from grpo_theory.problem.problem import Problem as Problem
from grpo_theory.problem.tree import TokenTree as TokenTree
from grpo_theory.problem.tree import edge_table as edge_table
from grpo_theory.problem.tree import response_table as response_table
from grpo_theory.problem.two_layer import TwoLayerSoftmax as TwoLayerSoftmax
