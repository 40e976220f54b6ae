"""Pages with programs in them: the blocks are run, and the numbers in their comments are checked."""

import ast
import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).resolve().parents[1] / "docs"
LITERAL = r"(?:-?\d+(?:\.\d+)?|True|False)"
SAID = re.compile(rf"^(?P<code>[^#\n]+?) +# (?P<said>{LITERAL}(?:, {LITERAL})*)(?::|$)", flags=re.MULTILINE)
"""An expression, and its values in a comment behind it."""


def blocks(text):
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run_blocks(text, folder):
    """Run the blocks of a page one after another, each from a file of its own; return the names they leave."""
    names = {"__name__": "__main__"}  # as a program has it, by which its kernels are cached
    for number, block in enumerate(blocks(text)):
        path = folder / f"block_{number}.py"
        path.write_text(block)
        exec(compile(block, path, "exec"), names)
        check_what_is_said(block, names)
    return names


def check_what_is_said(block, names):
    """Check the values in the comments of a block, each to the digits with which it is printed."""
    for line in SAID.finditer(block):
        code = re.sub(r"^print\((.*)\)$", r"\1", line["code"].strip())
        found = eval(compile(ast.parse(code, mode="eval"), "said", "eval"), names)
        for value, said in zip(np.atleast_1d(np.array(found, dtype=object)), line["said"].split(", "), strict=False):
            assert said == (str(value) if said in ("True", "False") else f"{value:.{len(said.partition('.')[2])}f}"), line["code"]
