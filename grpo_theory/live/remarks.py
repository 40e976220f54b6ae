"""When the advice of a reading differs from the advice that was last given, and how that is said."""

from grpo_theory.live.step_advice import StepAdvice
from grpo_theory.validation import counted

FEW_WITH_SIGNAL = 0.5
"""A remark is made if the confidence limits of the share of groups with signal lie below this: most samples are then wasted."""

SMALLEST_GROUP = 2


class SizeRemarks:
    """Remarks on the best group size: the first advice, and each that contradicts what was said last."""

    def __init__(self) -> None:
        self._said: StepAdvice | None = None

    def __call__(self, advice: StepAdvice) -> list[str]:
        """Return a remark if the size said to be best no longer may be, or the one in use enters or leaves the set."""
        said = self._said
        if advice.low <= SMALLEST_GROUP and not advice.bounded:
            return []  # the data rule no size out
        if said is not None and _may_be_best(advice, said.best) and advice.may_be_best == said.may_be_best:
            return []
        self._said = advice
        best = f"the best group size for {advice.estimator} is"
        if said is None:
            best = f"{best} {advice.best}"
        elif said.best == advice.best:
            best = f"{best} still {advice.best}"
        else:
            best = f"{best} now {advice.best}, no longer {said.best}"
        sizes = f"{advice.low} to {advice.high} may be best" if advice.low < advice.high else "no other size may be best"
        larger = "" if advice.bounded else f", sizes above {advice.high} were not considered"
        if advice.may_be_best:
            yours = f"yours, {advice.group_size}, may be best"
        else:
            yours = f"its efficiency is {advice.loss:.0%} above that of yours, {advice.group_size}"
        return [f"{best} ({counted(advice.prompts, 'prompt')}: {sizes}{larger}); {yours}"]


def _may_be_best(advice: StepAdvice, size: int) -> bool:
    return advice.low <= size <= advice.high


class SignalRemarks:
    """Remarks on the share of groups with signal, each time it surely crosses `FEW_WITH_SIGNAL`."""

    def __init__(self) -> None:
        self._few = False

    def __call__(self, share: float, low: float, high: float) -> list[str]:
        """Return a remark if the limits of the share lie on the other side than when a remark was made last."""
        if not self._few and high < FEW_WITH_SIGNAL:
            self._few = True
            return [
                f"{share:.0%} of the groups have signal ({low:.0%} to {high:.0%}). A group whose rewards are all equal gives no "
                "gradient. Prompts of middling difficulty, or larger groups, would waste fewer responses"
            ]
        if self._few and low > FEW_WITH_SIGNAL:
            self._few = False
            return [f"{share:.0%} of the groups have signal again ({low:.0%} to {high:.0%})"]
        return []
