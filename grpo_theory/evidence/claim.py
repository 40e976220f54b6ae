"""The record of a claim and of the evidence for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from grpo_theory.validation import as_count

WHOSE = ("paper", "correction", "ours")


@dataclass(frozen=True)
class Evidence:
    """An estimate against a prediction.

    Attributes
    ----------
    estimate : float
    prediction : float
        What the claim says the estimate is (identity, equality, rate), is at most (upper bound, ordering), or 0 (law).
    standard_error : float, default 0
        0 for an exact computation.
    margin : float, default 0
        How near is near enough: relative for an equality, absolute for a rate and a law; unused otherwise.
    replications : int, default 0
        0 for an exact computation.
    comparisons : int, default 1
        Of how many estimates this is the extreme one; the level is divided among them.
    """

    estimate: float
    prediction: float
    standard_error: float = 0.0
    margin: float = 0.0
    replications: int = 0
    comparisons: int = 1

    def __post_init__(self) -> None:
        numbers = (self.estimate, self.prediction, self.standard_error, self.margin)
        if not np.isfinite(numbers).all():
            raise ValueError(f"evidence must be finite, got (estimate, prediction, standard error, margin) = {numbers}")
        if self.standard_error < 0.0 or self.margin < 0.0:
            raise ValueError(f"standard_error and margin must not be negative, got {numbers[2:]}")
        as_count("comparisons", self.comparisons)
        if as_count("replications", self.replications, 0) == 0 and self.standard_error > 0.0:
            raise ValueError(
                f"replications must be at least 1 where there is a standard_error, got {self.standard_error:g} and 0"
            )


@dataclass(frozen=True)
class Statement:
    """An entry of the catalogue of claims.

    Attributes
    ----------
    id : str
        As in the list of claims: U1, T2, ...; with /printed and /corrected where they part.
    source : str
        Paper and number, or where the package derives it.
    text : str
        What is stated.
    kind : str
        A key of `grpo_theory.evidence.KINDS`.
    assumptions : str, default ""
        Under what.
    open : str, default ""
        Why it is not decided yet; empty for a statement that a study decides.
    whose : {"paper", "correction", "ours"}, default "paper"
        Whose statement it is: a paper's, as printed; ours in the place of a printed one that fails or can be sharpened; or a
        question or result of ours beside it, which no paper states.
    """

    id: str
    source: str
    text: str
    kind: str
    assumptions: str = ""
    open: str = ""
    whose: str = "paper"

    def __post_init__(self) -> None:
        if self.whose not in WHOSE:
            raise ValueError(f"whose must be one of {', '.join(WHOSE)}, got {self.whose!r}")

    @property
    def decided(self) -> bool:
        """Whether a study decides it."""
        return not self.open


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
    """

    statement: Statement
    setting: str
    evidence: Evidence
    control: Evidence
    facts: Mapping[str, float] = field(default_factory=dict)
