"""Which files of a folder are a log's: what their paths say, evaluation beside training, other files beside the rows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from grpo_theory.user_text import listed, printable

ENDINGS = (
    *(f"{one}{packed}" for one in (".csv", ".jsonl", ".ndjson", ".json") for packed in ("", ".gz", ".zst")),
    *(".arrow", ".feather", ".parquet"),
)
"""What names of files that can be read end in."""
EVALUATION = {
    *("eval", "evals", "evaluation", "evaluations", "val", "valid", "validation", "test", "testing", "dev", "greedy"),
    *("heldout", "holdout", "benchmark"),
}
"""Words in a path, or values of a column, that say that rows are not of training."""
WHOLE = {"all", "raw", "unfiltered"}
"""A folder of this name holds what the folders beside it hold a part of."""
PART = {"effective", "filtered", "kept", "used", "selected", "trained", "accepted"}
"""Names of folders that hold the groups which a filter left."""
RUNS = {"run", "seed", "trial", "experiment", "exp"}
"""Words whose numbers in a path tell training runs apart."""
BARE = "number"
"""The column of a number that is all of a file's or a folder's name."""

Where = Mapping[str, object]


def ending(path: Path) -> str | None:
    """Return what a file's name ends in, if it is a kind that can be read."""
    name = path.name.lower()
    return max((one for one in ENDINGS if name.endswith(one)), key=len, default=None)


def words(name: str) -> list[str]:
    """Return the words of a name in lower case: n_toolCalls has n, tool and calls."""
    return [one.lower() for one in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def path_values(relative: Path) -> dict[str, str]:
    """Return what a path says as columns: key=value, and numbers by the word before them (step_10 is step = 10)."""
    values: dict[str, str] = {}
    stem = relative.name[: len(relative.name) - len(ending(relative) or "")]
    for part in (*relative.parts[:-1], re.sub(r"-?\d+-of-\d+$", "", stem)):
        key, equals, value = part.partition("=")
        if equals and key and value:
            values[key] = value
        elif part.isdigit():
            values[BARE] = part
        else:
            values |= {match[1].lower(): match[2] for match in re.finditer(r"([A-Za-z]+)[_\-. ]?(\d+)(?![A-Za-z\d])", part)}
    return values


def same_value(value: object, wanted: object) -> bool:
    """Return whether a value is the one asked for: numbers as numbers, truth as 1 or true, texts as they are, * for any part."""

    def plain(one: object) -> str:
        text = str(one).strip()
        if text.lower() in ("true", "false"):
            return str(int(text.lower() == "true"))
        try:
            return repr(float(text))
        except ValueError:
            return text

    text = str(wanted)
    return fnmatchcase(str(value), text) if "*" in text else plain(value) == plain(wanted)


@dataclass
class Folder:
    """The files of a log, and those that are none.

    Attributes
    ----------
    root : Path
        The folder, or the folder of the only file.
    files : list of Path
    left_out : dict of str to list of Path
        By why they were left out.
    """

    root: Path
    files: list[Path]
    left_out: dict[str, list[Path]] = field(default_factory=dict)

    def drop(self, why: str, files: Iterable[Path]) -> None:
        """Leave files out for a reason."""
        gone = list(files)
        if gone:
            self.left_out.setdefault(why, []).extend(gone)
            self.files = [one for one in self.files if one not in set(gone)]

    def relative(self, file: Path) -> Path:
        """Return a file's path within the folder."""
        return file.relative_to(self.root)

    def values(self, file: Path) -> dict[str, str]:
        """Return what the path of a file says."""
        return path_values(self.relative(file))

    def kind(self, file: Path) -> str:
        """Return the path with its numbers taken out: files that differ in these are of one kind."""
        return re.sub(r"\d+", "#", self.relative(file).as_posix())


def files_of(path: Path) -> list[Path]:
    """Return a file, or a folder's files, in the order of the numbers in their names.

    Those in folders under it are included, hidden ones are not.
    """
    if path.exists() and not path.is_dir() and not path.is_file():
        raise ValueError(
            f"path must be a file or a folder of files, and '{printable(path)}' is a pipe or device: write it to a file first"
        )
    if path.is_file():
        if ending(path) is None:
            raise ValueError(f"path must end in {', '.join(ENDINGS)}, got '{printable(path)}'")
        return [path]
    if not path.is_dir():
        raise ValueError(f"path must be a file or a folder of files, and '{printable(path)}' does not exist")
    hidden = re.compile(r"(^|/)\.")
    files = [
        one for one in path.rglob("*") if one.is_file() and ending(one) and not hidden.search(one.relative_to(path).as_posix())
    ]
    if not files:
        raise ValueError(
            f"path must be a file or a folder of files that end in {', '.join(ENDINGS)}; '{printable(path)}' has none"
        )
    return sorted(files, key=lambda one: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(one))])


def open_folder(path: Path, where: Where) -> Folder:
    """Return the files of a log: of training where there are others, all groups where a part of them stands beside.

    Parameters
    ----------
    path : Path
        A file, or a folder.
    where : mapping
        Values asked for; `path`, and what paths say, choose files.
    """
    files = files_of(path)
    folder = Folder(path if path.is_dir() else path.parent, files)
    if path.is_file():
        return folder
    for key, wanted in where.items():
        said = {
            file: file.relative_to(folder.root).as_posix() if key == "path" else folder.values(file).get(key) for file in files
        }
        folder.drop(f"not {key}={wanted}", [one for one in folder.files if said[one] is not None and not _is(said[one], wanted)])
    if not folder.files:
        raise ValueError(
            f"where leaves no file of '{printable(path)}', with {listed(f'{key}={one}' for key, one in where.items())}; "
            f"found {listed(folder.relative(one).as_posix() for one in files)}"
        )
    if "path" not in where:
        evaluation = [one for one in folder.files if EVALUATION & set(words(folder.relative(one).as_posix()))]
        if len(evaluation) < len(folder.files):
            folder.drop("evaluation", evaluation)
        _leave_parts_out(folder)
    return folder


def _is(value: object, wanted: object) -> bool:
    return any(same_value(value, one) for one in (wanted if isinstance(wanted, list | tuple | set) else (wanted,)))


def _leave_parts_out(folder: Folder) -> None:
    """Leave out folders whose rows stand in a folder beside them, too."""
    parts = {one: folder.relative(one).parts for one in folder.files}
    for level in range(max(map(len, parts.values())) - 1):
        whole = {path[:level] for path in parts.values() if len(path) > level + 1 and path[level].lower() in WHOLE}
        folder.drop(
            "a part of the rows beside it",
            [
                one
                for one, path in parts.items()
                if len(path) > level + 1 and path[:level] in whole and path[level].lower() in PART and one in folder.files
            ],
        )


def check_one_run(folder: Folder) -> None:
    """Raise ValueError if the paths are of several training runs."""
    for word in sorted(RUNS):
        found = dict.fromkeys(value for file in folder.files if (value := folder.values(file).get(word)) is not None)
        if len(found) > 1:
            raise ValueError(
                f"path must be of one training run, and its files are of several ({word} = {listed(found)}): choose one, as "
                f"where={{'{word}': {next(iter(found))}}} or --where {word}={next(iter(found))}"
            )
