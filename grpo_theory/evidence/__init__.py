"""Evidence for claims, and the rules that turn it into verdicts."""

from grpo_theory.evidence.claim import PARTS as PARTS
from grpo_theory.evidence.claim import Claim as Claim
from grpo_theory.evidence.claim import Comparison as Comparison
from grpo_theory.evidence.claim import Margin as Margin
from grpo_theory.evidence.claim import Statement as Statement
from grpo_theory.evidence.claim import read_statements as read_statements
from grpo_theory.evidence.inequality import WorstCase as WorstCase
from grpo_theory.evidence.inequality import worst_case as worst_case
from grpo_theory.evidence.reading import difference as difference
from grpo_theory.evidence.reading import log_log_slope as log_log_slope
from grpo_theory.evidence.reading import mean_of as mean_of
from grpo_theory.evidence.reading import most as most
from grpo_theory.evidence.rules import ESTIMATE as ESTIMATE
from grpo_theory.evidence.rules import INCONCLUSIVE as INCONCLUSIVE
from grpo_theory.evidence.rules import KINDS as KINDS
from grpo_theory.evidence.rules import REFUTATIONS as REFUTATIONS
from grpo_theory.evidence.rules import Evidence as Evidence
from grpo_theory.evidence.rules import Judgement as Judgement
from grpo_theory.evidence.rules import Share as Share
from grpo_theory.evidence.verdicts import LEVEL as LEVEL
from grpo_theory.evidence.verdicts import decided as decided
from grpo_theory.evidence.verdicts import judge as judge
