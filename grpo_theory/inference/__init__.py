"""Judgement: evidence and verdicts, confidence sets and their coverage."""

from grpo_theory.inference.binomial import replications_to_tell as replications_to_tell
from grpo_theory.inference.coverage_record import Coverage as Coverage
from grpo_theory.inference.evidence import Claim as Claim
from grpo_theory.inference.evidence import Evidence as Evidence
from grpo_theory.inference.experiment import Experiment as Experiment
from grpo_theory.inference.interval import Ellipsoid as Ellipsoid
from grpo_theory.inference.interval import Interval as Interval
from grpo_theory.inference.laboratory import coverage as coverage
from grpo_theory.inference.laboratory import replay as replay
from grpo_theory.inference.pilot import Pilot as Pilot
from grpo_theory.inference.report import judge as judge
from grpo_theory.inference.rollouts import Rollouts as Rollouts
from grpo_theory.inference.slope import log_log_slope as log_log_slope
from grpo_theory.inference.trial import Replay as Replay
from grpo_theory.inference.verdict import KINDS as KINDS
from grpo_theory.inference.verdict import Judgement as Judgement
