"""`grpo-theory new`: writes a study of a paper to fill in, which runs as it is."""

import argparse
import re
from importlib.resources import files
from pathlib import Path

HELP = "write a study of a paper to fill in: statements, cases, controls, a figure"
DESCRIPTION = (
    "Write a study of a paper, by its number at arXiv, as a Python file that `grpo-theory verify` runs as it is. It holds a "
    "statement, its cases, a control and a figure, each with a remark on what to replace. docs/own_study.md has more."
)
NUMBER = re.compile(r"\d{4}\.\d{4,5}(v\d+)?")


def describe(new: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    new.description = DESCRIPTION
    new.add_argument("number", metavar="ARXIV-ID", help="as 2505.15201")
    new.add_argument("--out", type=Path, metavar="FILE", help="where it is written (default: paper_2505_15201.py)")


def run(options: argparse.Namespace) -> int:
    """Write the file, which must not be there; returns the exit status."""
    found = re.sub(r"^(arXiv:|https?://arxiv\.org/(abs|pdf)/)", "", options.number, flags=re.IGNORECASE)
    if not NUMBER.fullmatch(found):
        raise ValueError(f"ARXIV-ID must be a number at arXiv, as 2505.15201, got {options.number!r}")
    name = "paper_" + found.replace(".", "_")
    path = options.out or Path(f"{name}.py")
    template = files("grpo_theory.page").joinpath("study.jinja").read_text(encoding="utf-8")
    with path.open("x", encoding="utf-8") as file:
        file.write(template.replace("{{ number }}", found).replace("{{ name }}", name))
    print(f"written: {path}. Fill it in, then: grpo-theory verify {path}")
    return 0
