"""What a user says of a log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpo_theory.samples.column_choice import Reward
from grpo_theory.samples.log_rewards import Unscored
from grpo_theory.validation import as_count, shown

UNSCORED = ": unscored='leave' (--unscored leave) leaves rows without a reward out, 'zero' counts them as 0"

INFINITE = (
    ": no option reads these; correct the rows, or leave their rewards empty and choose unscored='leave' (--unscored leave), "
    "which leaves rows without a reward out"
)


@dataclass(frozen=True)
class Options:
    """What a user says of a log; None where the reader is to find it.

    Attributes
    ----------
    prompt : str or sequence of str, optional
    reward : str, sequence or mapping, optional
    length, response, step, scores, trajectory : str, optional
    group_of : int, optional
        So many rows one after another are a group.
    where : mapping
        Values of columns, or of what paths say, that rows must have.
    unscored : str
        What becomes of rows without a reward.
    """

    prompt: str | Sequence[str] | None = None
    reward: Reward = None
    length: str | None = None
    response: str | None = None
    step: str | None = None
    scores: str | None = None
    trajectory: str | None = None
    group_of: int | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    unscored: Unscored = "error"

    def check(self) -> None:
        """Raise on values that no log could have."""
        for role in ("length", "response", "step", "scores", "trajectory"):
            name = getattr(self, role)
            if name is not None and not isinstance(name, str):
                raise TypeError(f"{role} must be the name of a column, got an object of type {type(name).__name__}")
        if self.group_of is not None:
            as_count("group_of", self.group_of, 2)
        if self.unscored not in ("error", "leave", "zero"):
            raise ValueError(f"unscored must be 'error', 'leave' or 'zero', got {shown(self.unscored)}")
        if not isinstance(self.where, Mapping):
            raise TypeError(f"where must be a dictionary of values by column, got {shown(self.where)}")

    @property
    def prompts(self) -> tuple[str, ...] | None:
        """The columns given for the prompt."""
        if self.prompt is None or self.prompt == ():
            return None
        given = (self.prompt,) if isinstance(self.prompt, str) else tuple(self.prompt)
        if not all(isinstance(one, str) for one in given):
            raise TypeError(f"prompt must be the name of a column or several, got {shown(self.prompt)}")
        return given
