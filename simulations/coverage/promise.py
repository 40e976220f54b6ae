"""What a confidence interval promises, as a statement."""

from grpo_theory.evidence import Margin, Statement
from simulations.sources import OURS

POINT = Margin(0.01, "a reader of 95% does not notice 94%, and 90% misleads")


def covers(name: str, target: str, source: str, *, conservative: bool = False) -> Statement:
    """Return the statement that a 95% interval covers its target so often; a conservative one at least so often."""
    words = "at least 95%, within one point" if conservative else "95%"
    kind = "upper bound" if conservative else "equality"
    text = f"a 95% interval of the {target} covers {words}"
    return Statement(f"CI/{name}", source, text, kind, margin=None if conservative else POINT, whose=OURS)
