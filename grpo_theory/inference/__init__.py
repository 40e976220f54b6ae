"""Judgement: evidence and verdicts."""

from grpo_theory.inference.best_set import best_set as best_set
from grpo_theory.inference.evidence import Claim as Claim
from grpo_theory.inference.evidence import Evidence as Evidence
from grpo_theory.inference.report import judge as judge
from grpo_theory.inference.slope import log_log_slope as log_log_slope
from grpo_theory.inference.verdict import KINDS as KINDS
from grpo_theory.inference.verdict import Judgement as Judgement
