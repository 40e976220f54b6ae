"""The records of a statement and of a claim, which is a statement with the evidence for it in one setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, nan
from numbers import Real
from typing import NamedTuple

from grpo_theory.evidence.estimate import Evidence

WHOSE = ("paper", "correction", "ours")
PARTS = "parts"
"""The kind of a statement that is decided by its parts, which have ids of their own."""
WITH_MARGIN = ("equality", "rate", "law")
"""The kinds of which a sampled estimate can be confirmed only within a margin."""


Side = float | tuple[float, float, int]
"""What was computed of one side: a number, or where draws were made its estimate, its standard error and the number of draws."""


@dataclass(frozen=True)
class Margin:
    """How near an estimate must be to a prediction, argued before data are seen from what a reader would notice.

    Attributes
    ----------
    value : float
        Relative for an equality, absolute for a rate and a law.
    because : str
        The argument, in a sentence.
    absolute : bool, default False
        Whether it is absolute for an equality, too.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> margin = gt.Margin(0.02, "nobody changes a group size for 2% of the error")
    >>> gt.Statement("X1", "example", "the law is right", "equality", margin=margin).margin.value
    0.02
    """

    value: float
    because: str
    absolute: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, Real) or not 0.0 <= self.value < inf:
            raise ValueError(f"value must be a finite number, at least 0, got {self.value!r}")
        if not isinstance(self.because, str) or not self.because.strip():
            raise ValueError(f"because must be a text that argues the margin, got {self.because!r}")


@dataclass(frozen=True)
class Statement:
    """A statement to be decided by a study: its text, source, kind and assumptions.

    Attributes
    ----------
    id : str
        As in the list of claims: U1, T2, ...; with /printed and /corrected where they part.
    source : str
        Paper and number, or where the package derives it.
    text : str
        What is stated, in plain text, as tables and terminals show it.
    kind : str
        A key of `grpo_theory.evidence.KINDS`, or `PARTS` for a statement that is decided by others whose ids begin with its own.
    assumptions : str, default ""
        The conditions under which the statement is made.
    formula : str, default ""
        The statement in words with LaTeX between dollars, as the report typesets it; the text if empty.
    margin : Margin, optional
        The margin of all claims about the statement that have no margin of their own.
    whose : {"paper", "correction", "ours"}, default "paper"
        Whose statement it is.  The value "paper" is for the statement of the source, a paper or your notes, as it stands there.
        A "correction" is ours, in place of a printed one that fails or can be sharpened.  The value "ours" is for a question or
        result of ours that no paper states.  A file that names none is judged and shown alike.
    measured : bool, default False
        Whether a paper measured the statement on its own model, or calls it well supported in practice.  Another model then
        reproduces it or does not, and refutes nothing.
    open : str, default ""
        Why it is not decided yet; empty for a statement that a study decides.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> bound = gt.Statement("X1", "example", "a leave-one-out group's error falls with its size", "upper bound")
    >>> problem = gt.gallery.problem("tabular")
    >>> errors = [gt.gradient_mse(problem, problem.theta, "rloo", batch_size=8, group_size=size) for size in (2, 4)]
    >>> compared = bound.compare("tabular", errors[1], errors[0], broken=2.0 * errors[0])
    >>> compared.estimate < compared.prediction < compared.broken
    True
    >>> from grpo_theory.evidence.reading import exact
    >>> bound.claim("tabular", exact(errors[1], errors[0]), exact(2.0 * errors[0], errors[0])).setting
    'tabular'
    """

    id: str
    source: str
    text: str
    kind: str
    assumptions: str = ""
    formula: str = ""
    margin: Margin | None = None
    whose: str = "paper"
    measured: bool = False
    open: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "source", "text", "kind", "assumptions", "formula", "whose", "open"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a text, got {type(getattr(self, name)).__name__}")
        if not self.id.strip():
            raise ValueError("id must not be empty")
        if not isinstance(self.margin, Margin | None):
            raise TypeError(f"margin must be a Margin, got {type(self.margin).__name__}")
        if not isinstance(self.measured, bool):
            raise TypeError(f"measured must be True or False, got {type(self.measured).__name__}")
        if self.whose not in WHOSE:
            raise ValueError(f"whose must be one of {', '.join(WHOSE)}, got {self.whose!r}")
        if self.measured and self.whose != "paper":
            raise ValueError(f"a statement that a paper measured must be the paper's, got whose={self.whose!r} for {self.id}")

    @property
    def decided(self) -> bool:
        """Whether a study decides it."""
        return not self.open

    def claim(
        self,
        setting: str,
        own: Evidence,
        control: Evidence,
        facts: Mapping[str, float] | None = None,
        sound: Evidence | None = None,
    ) -> "Claim":
        """Return the claim that it holds in a setting: its evidence, and that of something wrong and of something that holds."""
        self._check_margin(own.margin or None)
        return Claim(self, setting, self.within(own), self.within(control), facts or {}, sound and self.within(sound))

    def compare(
        self,
        setting: str,
        estimate: Side,
        prediction: float,
        *,
        broken: Side,
        broken_prediction: float | None = None,
        sound: Side | None = None,
        margin: float | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> "Comparison":
        """Return what was computed of its two sides, of the broken one, and of a sound one.

        A side is a number where no draws were made, and else a tuple of its estimate, standard error and number of draws.

        Parameters
        ----------
        setting : str
            The problem, and whatever else was chosen.
        estimate : float or tuple
            What was computed.
        prediction : float
            What the statement says that it is, or is at most.
        broken : float or tuple
            What the same computation gives of something that is known to be wrong: it must be refuted.
        broken_prediction : float, optional
            What the broken side is held against; the same prediction if omitted.
        sound : float or tuple, optional
            What the same computation gives of something that is known to hold: it must not be refuted. Examples are the corrected
            statement, and a case in which a bound is attained. It is held against the same prediction.
        margin : float, optional
            That of the statement if omitted.
        facts : Mapping, optional
            What was computed beside: assumptions, constants.
        """
        against = float(prediction if broken_prediction is None else broken_prediction)
        self._check_margin(margin)
        near = (self.margin.value if self.margin else 0.0) if margin is None else margin
        own, wrong = _side(estimate), _side(broken)
        right = (nan, 0.0, 0) if sound is None else _side(sound)
        sides = own[0], float(prediction), wrong[0], against
        return Comparison(self.id, setting, *sides, near, facts or {}, right[0], tuple(side[1:] for side in (own, wrong, right)))

    def _check_margin(self, own: float | None) -> None:
        """Raise unless the statement or its evidence says how near is near enough, where the verdict depends on that."""
        if self.kind in WITH_MARGIN and self.margin is None and own is None:
            raise ValueError(
                f"a statement of kind {self.kind!r} needs a margin: give {self.id} margin=Margin(value, because), "
                "how near is near enough, and why"
            )

    def within(self, evidence: Evidence) -> Evidence:
        """Return evidence with the statement's margin, if it has none of its own.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> near = gt.Statement("X1", "example", "it is 1", "equality", margin=gt.Margin(0.02, "less is not seen"))
        >>> near.within(gt.evidence.Evidence(1.01, 1.0)).margin
        0.02
        """
        if evidence.margin or not self.margin:
            return evidence
        return replace(evidence, margin=self.margin.value, absolute=self.margin.absolute)


class Comparison(NamedTuple):
    """The two sides of a statement in one setting, the broken one, and the sound one: see `Statement.compare`.

    The errors are standard errors and numbers of draws of estimate, broken and sound side: 0 and 0 of what was computed
    without randomness. `sound` is nan where there is none.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> statement = gt.Statement("X1", "example", "two and two are four", "identity")
    >>> compared = statement.compare("integers", 2 + 2, 4.0, broken=2 + 3)
    >>> compared.estimate, compared.prediction, compared.broken
    (4.0, 4.0, 5.0)
    """

    statement: str
    setting: str
    estimate: float
    prediction: float
    broken: float
    broken_prediction: float
    margin: float
    facts: Mapping[str, float]
    sound: float
    errors: tuple[tuple[float, int], ...]


def _side(side: Side) -> tuple[float, float, int]:
    """Return estimate, standard error and number of draws of a side."""
    if isinstance(side, tuple):
        estimate, error, draws = side
        return float(estimate), float(error), int(draws)
    return float(side), 0.0, 0


@dataclass(frozen=True)
class Claim:
    """A statement in one setting, the evidence for it, and the evidence for its negative control.

    Attributes
    ----------
    statement : Statement
    setting : str
        The problem, and whatever else was chosen, with which the evidence was taken.
    evidence : Evidence
    control : Evidence
        The same evidence for the same claim with a wrong constant, rate or law; it must be refuted.
    facts : Mapping[str, float], default empty
        What was measured beside: assumptions, constants.
    sound : Evidence, optional
        The same evidence for something that is known to hold, the positive control; it must not be refuted.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.evidence.reading import exact
    >>> statement = gt.Statement("X1", "example", "two and two are four", "identity")
    >>> claim = statement.claim("integers", exact(2 + 2, 4.0), exact(2 + 3, 4.0))
    >>> claim.statement.id, claim.control.estimate
    ('X1', 5.0)
    """

    statement: Statement
    setting: str
    evidence: Evidence
    control: Evidence
    facts: Mapping[str, float] = field(default_factory=dict)
    sound: Evidence | None = None
