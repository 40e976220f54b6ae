"""Evidence for claims, and the rules that turn it into verdicts."""

from grpo_theory.evidence.certificate import Certificate, prove
from grpo_theory.evidence.claim import PARTS, Claim, Comparison, Margin, Statement, read_statements
from grpo_theory.evidence.inequality import WorstCase, worst_case
from grpo_theory.evidence.reading import difference, log_log_slope, mean_of, most
from grpo_theory.evidence.rules import ESTIMATE, INCONCLUSIVE, KINDS, REFUTATIONS, Evidence, Judgement, Share
from grpo_theory.evidence.verdicts import LEVEL, decided, judge

__all__ = ["ESTIMATE", "INCONCLUSIVE", "KINDS", "LEVEL", "PARTS", "REFUTATIONS", "Certificate", "Claim", "Comparison"]
__all__ += ["Evidence", "Judgement", "Margin", "Share", "Statement", "WorstCase", "decided", "difference", "judge"]
__all__ += ["log_log_slope", "mean_of", "most", "prove", "read_statements", "worst_case"]
__dir__ = __all__.copy
