"""Bring the verdicts of a full run into the repository: docs/verdicts.csv, and the table of the README that is made of it.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_verdicts.py [results]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulations.claims.digest import COLUMNS, digest
from simulations.harness.discovery import studies
from simulations.harness.verdicts import read_verdicts

TOP = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- verdicts: written by tools/write_verdicts.py -->", "<!-- end of verdicts -->"


def with_table(readme: str, table: str) -> str:
    """Return the README with another table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def main(results: Path) -> None:
    """Write both files, unless the verdicts are of a quick run or lack a study."""
    found = read_verdicts(results)
    missing = [name for name in studies() if name not in found.studies]
    if found.quick or missing:
        lack = "are of a quick run" if found.quick else f"lack {', '.join(missing)}"
        raise SystemExit(f"verdicts must be of a full run of all studies, and those in {results} {lack}")
    verdicts = found.claims[COLUMNS]
    verdicts.to_csv(TOP / "docs" / "verdicts.csv", index=False)
    readme = TOP / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), digest(verdicts)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
