"""The truth, no randomness: moments, the law of any gradient estimate, the objective's surface, maximisers and balls."""

from grpo_theory.exact.ball import Region as Region
from grpo_theory.exact.ball import largest_error as largest_error
from grpo_theory.exact.ball import longest_estimate as longest_estimate
from grpo_theory.exact.ball import region as region
from grpo_theory.exact.ball import steepest_ray as steepest_ray
from grpo_theory.exact.law import GradientLaw as GradientLaw
from grpo_theory.exact.law import NotEnumerableError as NotEnumerableError
from grpo_theory.exact.law import gradient_covariance as gradient_covariance
from grpo_theory.exact.law import gradient_law as gradient_law
from grpo_theory.exact.law import gradient_mean as gradient_mean
from grpo_theory.exact.law import gradient_mse as gradient_mse
from grpo_theory.exact.law import law_between as law_between
from grpo_theory.exact.maximiser import check_optimum as check_optimum
from grpo_theory.exact.maximiser import find_optimum as find_optimum
from grpo_theory.exact.stability import StabilityWarning as StabilityWarning
from grpo_theory.exact.stability import spectral_radius as spectral_radius
from grpo_theory.exact.surface import directional_derivatives as directional_derivatives
from grpo_theory.exact.surface import fisher_information as fisher_information
from grpo_theory.exact.surface import gradient as gradient
from grpo_theory.exact.surface import hessian as hessian
from grpo_theory.exact.surface import moments as moments
from grpo_theory.exact.surface import objective as objective
from grpo_theory.exact.weights import TokenWeights as TokenWeights
from grpo_theory.exact.weights import token_weights as token_weights
