"""Bring the verdicts of a full run into the repository: docs/verdicts.csv, and the table of the README that is made of it.

Run from the top folder, after `make reproduce`:  .venv/bin/python tools/write_verdicts.py [results/claims.csv]
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulations.claims.digest import COLUMNS, digest

TOP = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- verdicts: written by tools/write_verdicts.py -->", "<!-- end of verdicts -->"


def with_table(readme: str, table: str) -> str:
    """Return the README with another table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def main(source: Path) -> None:
    """Write both files."""
    verdicts = pd.read_csv(source, keep_default_na=False)[COLUMNS]
    verdicts.to_csv(TOP / "docs" / "verdicts.csv", index=False)
    readme = TOP / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), digest(verdicts)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/claims.csv"))
