"""The verdicts on disk: claims.csv, judged together from the tables that belong together, and beside it what it was made from."""

import hashlib
import sys
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from grpo_theory.evidence import REFUTATIONS, judge
from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.store import checksum_of, opened_json, read_table, sealed_json, study_fingerprint, write_atomically
from grpo_theory.harness.study import Study
from grpo_theory.user_text import printable
from grpo_theory.validation import counted

CLAIMS, ORIGIN = "claims.csv", "claims.json"
SAME = ("seed", "quick", "versions")
"""In what tables that are judged, or drawn, together must agree."""


class Verdicts(NamedTuple):
    """The rows of claims.csv and what they were made from.

    Attributes
    ----------
    claims : DataFrame
        One row per claim, with the study that it was read off.
    seed : int
    quick : bool
        Whether the studies had fewer replications.
    versions : Mapping[str, str]
    studies : tuple of str
        The studies whose tables were judged, in the order of the package.
    """

    claims: pd.DataFrame
    seed: int
    quick: bool
    versions: Mapping[str, str]
    studies: tuple[str, ...]


def judge_tables(root: Path, names: Sequence[str], studies: Mapping[str, Study]) -> tuple[Verdicts, dict[str, str]]:
    """Judge the claims of the named studies, and of all others whose tables stand beside theirs and belong to them.

    A table belongs to them if it has their seed, mode and versions, and its study's code has not changed.  So claims.csv is the
    same whether the studies are verified at once or one after another, and its intervals hold together.

    Parameters
    ----------
    root : Path
    names : sequence of str
    studies : Mapping of str to Study
        All that are judged together, by their names.

    Returns
    -------
    verdicts : Verdicts
    left_out : dict of str
        Why the table of a study is not judged, by the study's name, where there is one.

    Raises
    ------
    RefusedError
        If a table of the named studies is missing, or is of another seed, mode or version than the first of them.
    """
    facts = read_table(root, names[0])[1]
    tables, left_out = {}, {}
    for name, study in studies.items():
        if name not in names and not (root / f"{name}.parquet").exists():
            continue
        try:
            table, own = read_table(root, name)
            wanted = {fact: facts[fact] for fact in SAME} | {"source": study_fingerprint(study)}
            other = [fact for fact, value in wanted.items() if own[fact] != value]
            if other:
                raise RefusedError(f"the table {root / name}.parquet is of another {other[0]}", f"run {name}")
            tables[name] = table
        except RefusedError as error:
            if name in names:
                raise
            left_out[name] = error.reason
    stated = [(name, claim) for name, table in tables.items() for claim in studies[name].claims(table)]
    claims = judge([claim for _, claim in stated])
    claims.insert(0, "study", [name for name, _ in stated])
    return Verdicts(claims, facts["seed"], facts["quick"], facts["versions"], tuple(tables)), left_out


def write_verdicts(root: Path, verdicts: Verdicts) -> None:
    """Write claims.csv, and which tables it was judged from."""
    content = verdicts.claims.to_csv(index=False).encode()
    origin = {
        "seed": verdicts.seed,
        "quick": verdicts.quick,
        "versions": dict(verdicts.versions),
        "tables": {name: checksum_of(root / f"{name}.parquet") for name in verdicts.studies},
        CLAIMS: hashlib.sha256(content).hexdigest(),
    }
    write_atomically(root / CLAIMS, content)
    write_atomically(root / ORIGIN, sealed_json(origin))


def read_verdicts(root: Path, studies: Collection[str]) -> Verdicts:
    """Read what `verify` wrote of some of these studies.

    Raises
    ------
    RefusedError
        If there are no verdicts, they are damaged or edited, or a table has been replaced since they were judged.
    """
    path = root / CLAIMS
    try:
        content = path.read_bytes()
        origin: dict[str, Any] = opened_json((root / ORIGIN).read_bytes())
        if hashlib.sha256(content).hexdigest() != origin[CLAIMS]:
            raise ValueError("other claims")
    except FileNotFoundError as error:
        raise RefusedError(f"there are no verdicts {error.filename}", "verify") from None
    except (OSError, ValueError) as error:
        reason = f"the verdicts {path} are damaged, or not what `verify` wrote ({type(error).__name__})"
        raise RefusedError(reason, "verify") from None
    for name, checksum in origin["tables"].items():
        if name not in studies:
            raise RefusedError(f"the verdicts {path} are of a study {name!r}, which there is not", "verify")
        table = root / f"{name}.parquet"
        if not table.is_file() or checksum_of(table) != checksum:
            raise RefusedError(f"the table {table} is not the one that {path} was judged from", f"verify {name}")
    claims = pd.read_csv(BytesIO(content), keep_default_na=False)
    return Verdicts(claims, origin["seed"], origin["quick"], origin["versions"], tuple(origin["tables"]))


def check_together(root: Path, names: Sequence[str]) -> None:
    """Raise unless the tables of some studies agree in seed, mode and versions, as those of one figure must."""
    facts = {name: read_table(root, name)[1] for name in names}
    first = names[0]
    for name, fact in product(names[1:], SAME):
        if facts[name][fact] != facts[first][fact]:
            raise RefusedError(f"the tables of {first} and {name} in {root} are of another {fact} each", f"run {first} {name}")


def unexplained(claims: pd.DataFrame, reasons: Collection[tuple[str, str]], *, quick: bool) -> pd.DataFrame:
    """Return the rows of claims whose control has no power although nobody has said why.

    A quick run is too short for many controls, and shares of few trials are equal by chance.  So of its rows only those count
    that are exact and have the claim itself as control.

    Parameters
    ----------
    claims : DataFrame
        Rows of `judge`.
    reasons : collection of (str, str)
        Statements and settings for which the reason is known; * stands for any text in a setting.
    quick : bool
    """
    same = (claims["control_estimate"] == claims["estimate"]) & (claims["control_prediction"] == claims["prediction"])
    itself = same & (claims["replications"] == 0)
    refuted = claims["verdict"].isin(REFUTATIONS)  # which needs no negative control
    known = [
        any(name == row.id and fnmatchcase(row.problem, setting) for name, setting in reasons) for row in claims.itertuples()
    ]
    return claims[~claims["power"] & ~refuted & (itself if quick else True) & ~np.array(known, dtype=bool)]


def say_power(claims: pd.DataFrame, reasons: Collection[tuple[str, str]], *, quick: bool, where: str) -> int:
    """Print the checks without power, how many there are, and the first of which nobody has said why; returns the exit status.

    It is 1 if there is one of those. The words `where` end the line that counts.
    """
    uninformative = claims[~claims["power"]]
    for row in uninformative.itertuples():
        sides = (
            f"{row.control_estimate:g} against {row.control_prediction:g}, the claim {row.estimate:g} against {row.prediction:g}"
        )
        print(f"no power: {printable(row.id)} on {printable(row.problem)}: its negative control is {row.control} ({sides})")
    print(f"{counted(len(claims), 'claim')}, {len(uninformative)} without power{where}", flush=True)
    blind = unexplained(claims, reasons, quick=quick)
    if len(blind):
        first = f"{printable(blind.iloc[0]['id'])} on {printable(blind.iloc[0]['problem'])}"
        print(
            f"{counted(len(blind), 'check')} could not have failed, first {first}: mend the control, or say in POWERLESS, in the "
            "study's file, why it survives",
            file=sys.stderr,
        )
    return 1 if len(blind) else 0
