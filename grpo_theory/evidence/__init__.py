"""Evidence for claims, and the rules that turn it into verdicts."""

from grpo_theory.evidence.certificate import Certificate, prove
from grpo_theory.evidence.claim import PARTS, Claim, Comparison, Margin, Statement, read_statements
from grpo_theory.evidence.inequality import WorstCase, worst_case
from grpo_theory.evidence.reading import difference, log_log_slope, mean_of, most
from grpo_theory.evidence.rules import ESTIMATE, INCONCLUSIVE, KINDS, REFUTATIONS, Evidence, Judgement, Share
from grpo_theory.evidence.verdicts import LEVEL, decided, judge

__all__ = ["PARTS", "Claim", "Comparison", "Margin", "Statement", "WorstCase", "difference", "read_statements", "worst_case"]
__all__ += ["ESTIMATE", "INCONCLUSIVE", "KINDS", "REFUTATIONS", "Evidence", "Judgement", "log_log_slope", "mean_of", "most"]
__all__ += ["LEVEL", "Certificate", "Share", "decided", "judge", "prove"]
