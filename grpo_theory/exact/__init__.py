"""The truth, no randomness: moments by enumeration; expectation and covariance of any kernel."""

from grpo_theory.exact.gradient_law import GradientLaw as GradientLaw
from grpo_theory.exact.gradient_law import NotEnumerableError as NotEnumerableError
from grpo_theory.exact.gradient_law import gradient_covariance as gradient_covariance
from grpo_theory.exact.gradient_law import gradient_law as gradient_law
from grpo_theory.exact.gradient_law import gradient_mean as gradient_mean
from grpo_theory.exact.gradient_law import gradient_mse as gradient_mse
from grpo_theory.exact.moments import Moments as Moments
from grpo_theory.exact.moments import moments as moments
from grpo_theory.exact.objective import directional_derivatives as directional_derivatives
from grpo_theory.exact.objective import gradient as gradient
from grpo_theory.exact.objective import hessian as hessian
from grpo_theory.exact.objective import objective as objective
