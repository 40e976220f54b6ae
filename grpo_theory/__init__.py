"""What is true about GRPO and its relatives: exact theory, Monte Carlo and verdicts."""

from importlib import import_module
from typing import Any

from grpo_theory.estimator import Batch as Batch
from grpo_theory.estimator import Estimator as Estimator
from grpo_theory.estimator import estimator as estimator
from grpo_theory.estimator import estimators as estimators
from grpo_theory.exact import GradientLaw as GradientLaw
from grpo_theory.exact import Moments as Moments
from grpo_theory.exact import NotEnumerableError as NotEnumerableError
from grpo_theory.exact import gradient_covariance as gradient_covariance
from grpo_theory.exact import gradient_law as gradient_law
from grpo_theory.exact import gradient_mean as gradient_mean
from grpo_theory.exact import gradient_mse as gradient_mse
from grpo_theory.exact import hessian as hessian
from grpo_theory.exact import moments as moments
from grpo_theory.exact import objective as objective
from grpo_theory.kl import KL as KL
from grpo_theory.policy import LinearSoftmax as LinearSoftmax
from grpo_theory.policy import Policy as Policy
from grpo_theory.policy import SoftmaxHead as SoftmaxHead
from grpo_theory.policy import TabularSoftmax as TabularSoftmax
from grpo_theory.problem import Bandit as Bandit
from grpo_theory.schedule import Constant as Constant
from grpo_theory.schedule import Harmonic as Harmonic
from grpo_theory.schedule import Power as Power
from grpo_theory.schedule import Schedule as Schedule
from grpo_theory.simulate import Ball as Ball
from grpo_theory.simulate import GradientSimulation as GradientSimulation
from grpo_theory.simulate import TrainingRecord as TrainingRecord
from grpo_theory.simulate import TrainingRuns as TrainingRuns
from grpo_theory.simulate import block_replications as block_replications
from grpo_theory.simulate import simulate_gradients as simulate_gradients
from grpo_theory.simulate import simulate_records as simulate_records
from grpo_theory.simulate import simulate_training as simulate_training
from grpo_theory.theory import GroupSizeLaw as GroupSizeLaw
from grpo_theory.theory import WeightedChiSquare as WeightedChiSquare
from grpo_theory.theory import find_optimum as find_optimum
from grpo_theory.theory import group_size_law as group_size_law
from grpo_theory.theory import limit_law as limit_law

__version__ = "0.1.0"

_ROOMS = ("data", "gallery", "inference", "theory")
_LABORATORY = ("Coverage", "Ellipsoid", "Interval", "Pilot", "Rollouts", "Training", "coverage", "replay")


def __getattr__(name: str) -> Any:
    """Import a room when it is first entered, or its names asked for: importing the package stays quick."""
    if name in _ROOMS:
        return import_module(f"grpo_theory.{name}")
    if name in _LABORATORY:
        return getattr(import_module("grpo_theory.inference"), name)
    raise AttributeError(f"module 'grpo_theory' has no attribute {name!r}")
