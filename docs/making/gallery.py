"""Scripts for sphinx-gallery, one a figure: its own source, and the line that draws it from the tables."""

import ast
from pathlib import Path

from docs.making.places import GENERATED, TOP, write
from docs.making.reference import escape
from grpo_theory.harness.store import read_table
from grpo_theory.page.captions import caption_of
from paper_figures.discovery import figures, figures_of

RESULTS = ("results", "results-quick")
"""Folders of tables, the first of which is taken."""
SCRIPT = '''r"""
{title}
{line}

{caption}
"""

# ruff: noqa
{source}

# %%
# Drawn from the tables of {tables}.

from pathlib import Path

from grpo_theory.page import style
from grpo_theory.harness.store import read_table

style.apply()
figure = draw({{name: read_table(Path({results!r}), name)[0] for name in TABLES}})
'''


def results() -> Path | None:
    """Return the folder of tables that stands in the checkout, if any."""
    return next((TOP / name for name in RESULTS if any((TOP / name).glob("*.parquet"))), None)


def write_scripts(tables: Path) -> Path:
    """Write a script for each figure whose tables stand there, in the order of the report; return their folder."""
    folder = GENERATED / "scripts"
    write("scripts/README.rst", "Figures\n=======\n\nEvery figure of the report, and the program that draws it.\n")
    names = figures_of([path.stem for path in tables.glob("*.parquet")])
    wanted = {"README.rst"}
    for name in names:
        module = figures()[name]
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        tree = ast.parse(text)
        title = str(ast.get_docstring(tree)).splitlines()[0].rstrip(".")
        source = "\n".join(text.splitlines()[tree.body[0].end_lineno :]).strip()
        caption = caption_of(module, {table: read_table(tables, table)[0] for table in module.TABLES})
        facts = {"title": title, "line": "=" * len(title), "caption": escape(caption), "tables": ", ".join(module.TABLES)}
        script = f"plot_{module.PLACE:04g}_{name}.py"
        wanted.add(script)
        write(f"scripts/{script}", SCRIPT.format(**facts, source=source, results=str(tables)))
    for stale in folder.glob("plot_*.py"):
        if stale.name not in wanted:
            stale.unlink()
    return folder
