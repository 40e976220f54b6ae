"""Judgement: evidence, verdicts and intervals."""

from grpo_theory.inference.evidence import Claim as Claim
from grpo_theory.inference.evidence import Evidence as Evidence
from grpo_theory.inference.paired import paired_difference as paired_difference
from grpo_theory.inference.paired import paired_sequence as paired_sequence
from grpo_theory.inference.paired import seeds_needed as seeds_needed
from grpo_theory.inference.path_interval import batch_means_interval as batch_means_interval
from grpo_theory.inference.path_interval import random_scaling_interval as random_scaling_interval
from grpo_theory.inference.path_interval import random_scaling_quantile as random_scaling_quantile
from grpo_theory.inference.plug_in import averaged_iterate_interval as averaged_iterate_interval
from grpo_theory.inference.plug_in import gap_limit as gap_limit
from grpo_theory.inference.plug_in import gap_weights as gap_weights
from grpo_theory.inference.plug_in import last_iterate_ellipsoid as last_iterate_ellipsoid
from grpo_theory.inference.plug_in import last_iterate_interval as last_iterate_interval
from grpo_theory.inference.report import judge as judge
from grpo_theory.inference.slope import log_log_slope as log_log_slope
from grpo_theory.inference.tail_value import best_value_interval as best_value_interval
from grpo_theory.inference.tail_value import learned_value_interval as learned_value_interval
from grpo_theory.inference.tail_value import tail_value_interval as tail_value_interval
from grpo_theory.inference.verdict import KINDS as KINDS
from grpo_theory.inference.verdict import Judgement as Judgement
from grpo_theory.simulate.record import TrainingRecord as TrainingRecord
from grpo_theory.simulate.record import rollout_hessian as rollout_hessian
