"""Results on disk: chunks, tables for pandas with facts of their runs, and the verdicts that are judged from tables together.

All are written atomically and checked when read. Verdicts are in claims.csv, and beside it what it was made from.
"""

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from grpo_theory.estimation import SourceFile
from grpo_theory.evidence import REFUTATIONS, judge
from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.study import Cell, Study
from grpo_theory.user_text import printable
from grpo_theory.validation import counted

LIBRARY = "grpo_theory"
IDLE = ("checks/", "harness/", "live/", "page/", "plot/", "evidence/verdicts.py")
"""What of the library changes no number of a chunk: what shows, watches, runs and judges."""
RUNNING = "harness/study.py"
"""And of that, what makes a chunk of a study."""
MARK = b"grpo_theory sha256 "
"""What stands in a file of results in front of its checksum, which is over all its other bytes."""
UNSEALED = MARK + b"0" * 64
"""What stands there while the checksum is taken."""


def folder_of(package: str) -> Path:
    """Return the folder of a package, without importing it."""
    spec = find_spec(package)
    assert spec is not None
    return Path(str(spec.origin)).parent


@cache
def checkout_checksum(package: str = "", computing: bool = False) -> str:
    """Return a checksum of all files of the library and a package of studies, to tell machines apart, or of what computes."""
    digest = hashlib.sha256()
    for one in dict.fromkeys((LIBRARY, package or LIBRARY)):
        folder = folder_of(one)
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json", ".npz", ".toml")):
            name = path.relative_to(folder).as_posix()
            if not computing or name == RUNNING or not name.startswith(IDLE):
                digest.update(f"{one}/{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def study_fingerprint(study: Study) -> str:
    """Return a checksum of what a study's chunks and table depend on, so that they are made again when it changes.

    That is the library, but for what shows, runs or judges, the study's file, and what that imports of its own package or folder.
    Of the statements, which may stand elsewhere, id, kind and margin count.
    """
    facts = [(one.id, one.kind, one.margin and one.margin.value) for one in study.statements]
    return hashlib.sha256(
        f"{checkout_checksum(computing=True)}\n{_code(study.sources or study.module)}\n{facts}".encode()
    ).hexdigest()


@cache
def _code(origin: str | tuple[SourceFile, ...]) -> str:
    """Return a checksum of a study's own code: of the files that travel with it, and of packages beside it."""
    if isinstance(origin, str):
        texts = _imported(origin)
    else:
        faces = sorted(Path(origin[-1].path).parent.glob("*/__init__.py"))
        beside = [path for face in faces for path in sorted(face.parent.rglob("*.py"))]
        texts = [*(source.text for source in origin), *(path.read_text(encoding="utf-8") for path in beside)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _imported(module: str) -> list[str]:
    """Return the texts of a module and of the files of its package that it imports, directly or not."""
    package = module.partition(".")[0]
    found, waiting = dict[str, str](), [module]
    while waiting:
        name = waiting.pop()
        path = folder_of(package).parent.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name not in found and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            for base, names in re.findall(rf"from ({package}[\w.]*) import (\([^)]*\)|.*)", found[name]):
                waiting += [base, *(f"{base}.{one}" for one in re.findall(r"\w+", names))]
    return [found[name] for name in sorted(found)]


def sealed(content: bytes) -> bytes:
    """Return content that holds `UNSEALED` once with its own checksum in the place of the zeros."""
    return content.replace(UNSEALED, MARK + hashlib.sha256(content).hexdigest().encode())


def opened(content: bytes) -> bytes:
    """Return content as it was sealed; raise ValueError if it is damaged, edited or never sealed, before a parser sees it."""
    head, mark, tail = content.rpartition(MARK)
    if not mark or sealed(head + UNSEALED + tail[64:]) != content:
        raise ValueError("its checksum is another")
    return content


def sealed_json(body: Any) -> bytes:
    """Return a body as sealed JSON."""
    return sealed(json.dumps({"seal": UNSEALED.decode(), "body": body}).encode())


def opened_json(content: bytes) -> Any:
    """Return the body of what `sealed_json` wrote; raise ValueError if it is anything else, or damaged."""
    return json.loads(opened(content))["body"]


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts in a file of sealed JSON, none if there is no such file or it is damaged."""
    try:
        return dict(opened_json(path.read_bytes()))
    except (OSError, ValueError):
        return {}


CHUNKS = "chunks"
"""The folder of chunks."""
RUNS = "runs"
"""The folder of facts of runs, which no number depends on."""
PARTIAL = ".partial"
"""The ending of a file that is being written."""
NUMERICAL = ("numpy", "scipy", "numba")
"""What a chunk's numbers are made with: a chunk of other versions is computed again."""


@cache
def versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    packages = ("grpo-theory", "numpy", "scipy", "numba", "pandas", "pyarrow", "seaborn", "matplotlib", "statsmodels")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all; an older one stays until then.

    Raises
    ------
    RefusedError
        If it cannot be written, as on a full disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise RefusedError(f"cannot write {path}: {error.strerror}; what was finished before is kept") from None
    finally:
        temporary.unlink(missing_ok=True)


class Store:
    """The results of one seed under one folder, which an option of the command names."""

    def __init__(self, root: Path, seed: int, option: str = "--results") -> None:
        self.root = root
        self.seed = seed
        self.option = option
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(f"{option} must be a folder that can be written, got {root}: {error.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder, whose chunks and tables theirs would replace; a run that dies lets them in.

        Raises
        ------
        RefusedError
            If another run is at work there, or the file of the lock cannot be had.
        """
        path, other = self.root / ".lock", f"give {self.option} another folder"
        with ExitStack() as stack:
            try:
                if sys.platform != "win32":  # where nothing keeps two runs apart
                    import fcntl

                    fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RefusedError(f"another run is at work in {self.root}: wait until it has finished, or {other}") from None
            except OSError as error:
                raise RefusedError(f"cannot lock {path}, by which runs know of each other: {error.strerror}; {other}") from None
            # What runs that were killed while they wrote have left.
            for folder, pattern in ((self.root, "*"), (self.root / RUNS, "*"), (self.root / CHUNKS, "**/*")):
                for left in folder.glob(f"{pattern}{PARTIAL}"):
                    left.unlink(missing_ok=True)
            yield

    def read_chunk(self, study: Study, cell: Cell, chunk: int) -> dict[str, Any] | None:
        """Return a chunk's record, or None if it is missing, damaged, or made by other code, versions, settings or seed."""
        path, expected = self._place(study, cell, chunk)
        body = read_facts(path)
        made = body.get("versions", {})
        same = all(made.get(name) == versions()[name] for name in NUMERICAL)
        return body if same and {name: body.get(name) for name in expected} == expected else None

    def write_chunk(self, study: Study, cell: Cell, chunk: int, data: Any, seconds: float) -> None:
        """Write a chunk's result with everything that it depends on."""
        path, identity = self._place(study, cell, chunk)
        write_atomically(path, sealed_json({**identity, "versions": versions(), "seconds": seconds, "data": data}))

    def write_table(self, study: Study, table: pd.DataFrame, seconds: float, *, quick: bool) -> None:
        """Write a study's tidy table as Parquet, with what it was made from in its metadata.

        The same numbers make the same bytes, so what differs from run to run stands in a file of its own.
        """
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        facts = {"seed": self.seed, "quick": quick, "versions": versions(), "source": study_fingerprint(study)}
        metadata = dict(arrow.schema.metadata or {}) | {b"grpo_theory": json.dumps(facts).encode(), b"seal": UNSEALED}
        arrow = arrow.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        pq.write_table(arrow, sink)
        write_atomically(self.root / f"{study.name}.parquet", sealed(sink.getvalue().to_pybytes()))
        run = {"processor seconds": seconds, "host": platform.node(), "built": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(self.root / RUNS / f"{study.name}.json", sealed_json(run))

    def _place(self, study: Study, cell: Cell, chunk: int) -> tuple[Path, dict[str, Any]]:
        """Return the file of a chunk, and what it is of."""
        folder = hashlib.sha256(cell.key.encode()).hexdigest()[:16]
        source = study_fingerprint(study) + cell.code
        identity = {"settings": json.loads(cell.key), "seed": self.seed, "chunk": chunk, "source": source}
        return self.root / CHUNKS / study.name / folder / f"{chunk:04d}.json", identity


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_table(root: Path, study: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a study's table and what it was made from: seed, quick, versions, source.

    Raises
    ------
    RefusedError
        If the table is missing, or is not to the last bit what a study wrote.
    """
    path = root / f"{study}.parquet"
    try:
        content = path.read_bytes()
        # A pool of Arrow's that is still at work when the interpreter ends aborts it (apache/arrow#34314); this starts none.
        arrow = pq.ParquetFile(pa.BufferReader(opened(content)), pre_buffer=False).read(use_threads=False)
        facts = json.loads(arrow.schema.metadata[b"grpo_theory"])
    except FileNotFoundError:
        raise RefusedError(f"there is no table {path}", f"run {study}") from None
    except OSError as error:
        raise RefusedError(f"the table {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        reason = f"the table {path} is damaged or edited, or another version wrote it ({error})"
        raise RefusedError(reason, f"run {study}") from None
    return arrow.to_pandas(use_threads=False), facts


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
