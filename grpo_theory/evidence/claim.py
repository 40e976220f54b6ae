"""The records of a statement and of a claim, which is a statement with the evidence for it in one setting."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any

from grpo_theory.evidence.rules import KINDS, Evidence, as_side
from grpo_theory.plain_text import plain
from grpo_theory.validation import as_flag

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


def check_margin(statement: Statement, given: bool = False) -> None:
    """Raise unless a statement or its evidence says how near is near enough, where the verdict depends on that."""
    if statement.kind in WITH_MARGIN and statement.margin is None and not given:
        raise ValueError(
            f"a statement of kind {statement.kind!r} needs a margin: give {statement.id} margin=Margin(value, because), "
            "how near is near enough, and why"
        )


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
        if not isinstance(self.kind, str) or self.kind not in (*KINDS, PARTS):
            raise ValueError(f"kind must be one of {', '.join((*KINDS, PARTS))}, got {self.kind!r} for {self.id}")
        if not isinstance(self.margin, Margin | None):
            raise TypeError(f"margin must be a Margin, got {type(self.margin).__name__}")
        if not isinstance(self.whose, str) or self.whose not in WHOSE:
            raise ValueError(f"whose must be one of {', '.join(WHOSE)}, got {self.whose!r}")
        if as_flag("measured", self.measured) and self.whose != "paper":
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
    ) -> Claim:
        """Return the claim that it holds in a setting: its evidence, and that of something wrong and of something that holds."""
        check_margin(self, bool(own.margin))
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
    ) -> Comparison:
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
        check_margin(self, margin is not None)

        def held(side: Side, against: float) -> Evidence:
            value, error, draws = as_side(self.id, side)
            return self.within(Evidence(float(value), float(against), error, margin or 0.0, draws))

        against = prediction if broken_prediction is None else broken_prediction
        right = None if sound is None else held(sound, prediction)
        return Comparison(self, setting, held(estimate, prediction), held(broken, against), facts or {}, right)

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


@dataclass(frozen=True)
class Comparison(Claim):
    """The claim of two sides that were computed in one setting, the broken one, and the sound one: see `Statement.compare`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> statement = gt.Statement("X1", "example", "two and two are four", "identity")
    >>> compared = statement.compare("integers", 2 + 2, 4.0, broken=2 + 3)
    >>> compared.estimate, compared.prediction, compared.broken
    (4.0, 4.0, 5.0)
    """

    estimate = property(lambda self: self.evidence.estimate)
    prediction = property(lambda self: self.evidence.prediction)
    margin = property(lambda self: self.evidence.margin)
    broken = property(lambda self: self.control.estimate)
    broken_prediction = property(lambda self: self.control.prediction)


HEAD = ("paper", "derivations", "margins")
"""What may stand above the statements: where the numbers and the sections are to be found, and margins by their names."""
KEYS = ("says", "kind", "number", "section", "source", "assumptions", "margin", "whose", "measured", "open", "text")
PLACES = ("number", "section", "source")


def read_statements(path: str | Path) -> dict[str, Statement]:
    r"""Read statements from a TOML file in which each is a table under its id.

    At the top ``paper`` names what the statements' ``number`` counts, and ``derivations`` what their ``section`` counts.
    The table ``margins`` holds margins that several statements share.  A statement has the keys ``says`` and ``kind``.
    Where they differ from the defaults it has ``number``, ``section`` or ``source``, and further keys.  These are
    ``assumptions``, ``margin``, ``whose``, ``measured``, ``open`` and ``text``.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    dict of str to Statement
        By id, in the order of the file.  What is said may hold LaTeX between dollars.  It is the formula, and the
        text is the same in plain characters.  The key ``text`` replaces these.

    Raises
    ------
    ValueError
        If the file is no TOML, or a table says what no statement has; the message names file, id and key.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from grpo_theory.evidence import read_statements
    >>> text = '''
    ... paper = "my notes"
    ... margins.small = {value = 0.02, because = "nobody sees 2%"}
    ... ["mine/error"]
    ... number = "Lemma 1"
    ... kind = "equality"
    ... margin = "small"
    ... says = 'The error is $\\frac{c_1}{B}+\\frac{c_2}{BG}$.'
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.toml")
    ...     _ = path.write_text(text)
    ...     stated = read_statements(path)["mine/error"]
    >>> stated.source, stated.text
    ('my notes, Lemma 1', 'the error is c_1/B + c_2/(BG)')
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    head = {key: tables.pop(key) for key in HEAD if key in tables}
    margins = {name: _margin(value, f"{path}, margins.{name}") for name, value in head.pop("margins", {}).items()}
    return {name: _statement(name, table, head, margins, f"{path}, {name!r}") for name, table in tables.items()}


def _statement(name: str, table: Any, head: Mapping[str, str], margins: Mapping[str, Margin], where: str) -> Statement:
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table, or one of {', '.join(HEAD)}, got {table!r}")
    for key in table:
        if key not in KEYS:
            raise ValueError(f"{where}: no statement has the key {key!r}; it may have {', '.join(KEYS)}")
    words: dict[str, Any] = {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in table.items()}
    for key in ("says", "kind"):
        if not words.get(key) or not isinstance(words[key], str):
            raise ValueError(f"{where} has no text {key!r}")
    says, near = words.pop("says"), words.pop("margin", None)
    if isinstance(near, str) and near not in margins:
        raise ValueError(f"{where}: margin must be one of {', '.join(margins)}, got {near!r}")
    margin = margins[near] if isinstance(near, str) else None if near is None else _margin(near, where)
    clause = says
    if says.endswith((".", "?", "$$")):  # a sentence stands in tables without a capital and a full stop
        clause = re.sub(r"^[A-Z](?=[a-z]*\b(?! \d))", lambda found: found[0].lower(), says.removesuffix("."))
    try:
        text = words.pop("text", "") or plain(clause)
        given = {key: words.pop(key) for key in PLACES if key in words}
        if len(given) > 1:
            raise ValueError(f"it must have one of {', '.join(PLACES)}, got {' and '.join(given)}")
        needed = "derivations" if "section" in given else "paper"
        if "source" not in given and needed not in head:
            raise ValueError(f"it stands nowhere: give it a source, or the file a {needed!r} at its top")
        source = given["source"] if "source" in given else ", ".join([head[needed], *map(str, given.values())])
        return Statement(name, source, text, formula="" if says == text else says, margin=margin, **words)
    except IndexError:
        raise ValueError(f"{where}: {says!r} holds a formula that ends too early") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _margin(table: Any, where: str) -> Margin:
    try:
        return Margin(**table)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: a margin must be {{value = ..., because = ...}}, got {table!r}: {error}") from None
