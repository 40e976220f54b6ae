"""`grpo-theory estimators`: every estimator that has a name, with its formula and source.

What is slow to import is imported after the command line is understood.
"""

import argparse
import textwrap

WIDTH = 120
"""Characters of a line."""
HELP = "list the estimators by name, with formula and source"
DESCRIPTION = (
    "List the estimators that have names: what they compute, and where that comes from.  Each name is what --estimator of "
    "`grpo-theory plan` takes, and `estimator` of every function.  A word given is looked for in names, formulas and sources."
)


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    parser.description = DESCRIPTION
    said = "list only estimators that contain this word, such as trl or 'ddof 1'"
    parser.add_argument("word", nargs="?", default="", metavar="WORD", help=said)


def run(options: argparse.Namespace) -> int:
    """Print a line or two for each estimator; returns the exit status: 1 if none has the word."""
    from grpo_theory.estimation import estimators

    known = {name: one.description for name, one in estimators().items()}
    return print_table(known, options.word)


def print_table(known: dict[str, str], word: str) -> int:
    """Print names with their descriptions, where either has the word; returns 1 if none has."""
    shown = {name: text for name, text in known.items() if word.lower() in f"{name} {text}".lower()}
    margin = 2 + max(map(len, shown), default=0)
    for name, text in shown.items():
        print(textwrap.fill(text, WIDTH, initial_indent=f"{name:<{margin}}", subsequent_indent=" " * margin))
    if not shown:
        print(f"none of {len(known)} has {word!r}")
    return 0 if shown else 1
