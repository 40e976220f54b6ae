"""`grpo-theory estimators` and `grpo-theory problems`: every estimator that has a name, and every problem of the gallery.

What is slow to import is imported after the command line is understood.
"""

import argparse
import textwrap
from collections.abc import Callable
from types import SimpleNamespace

WIDTH = 120
"""Characters of a line."""


def _describe(description: str, word: str) -> Callable[[argparse.ArgumentParser], None]:
    def describe(parser: argparse.ArgumentParser) -> None:
        parser.description = description
        parser.add_argument("word", nargs="?", default="", metavar="WORD", help=word)

    return describe


def _print_table(known: dict[str, str], word: str) -> int:
    """Print names with their descriptions, where either has the word; returns 1 if none has."""
    shown = {name: text for name, text in known.items() if word.lower() in f"{name} {text}".lower()}
    margin = 2 + max(map(len, shown), default=0)
    for name, text in shown.items():
        print(textwrap.fill(text, WIDTH, initial_indent=f"{name:<{margin}}", subsequent_indent=" " * margin))
    if not shown:
        print(f"none of {len(known)} has {word!r}")
    return 0 if shown else 1


def _list_estimators(options: argparse.Namespace) -> int:
    """Print a line or two for each estimator; returns the exit status: 1 if none has the word."""
    from grpo_theory.estimation import estimators

    return _print_table({name: one.description for name, one in estimators().items()}, options.word)


def _list_problems(options: argparse.Namespace) -> int:
    """Print a few lines for each problem; returns the exit status: 1 if none has the word."""
    import pandas as pd

    from grpo_theory.problem import gallery
    from grpo_theory.validation import counted

    known = {}
    for name, row in gallery.describe().iterrows():
        responses = "too many responses to list" if pd.isna(row["responses"]) else f"{row['responses']} responses each"
        prompts = counted(int(row["prompts"]), "prompt")
        sizes = f"{prompts}, {responses}, {row['parameters']} parameters, reward {row['reward']:.3f}"
        known[str(name)] = f"{row['about']} ({row['tags']}: {sizes})"
    return _print_table(known, options.word)


estimators_command = SimpleNamespace(
    HELP="list the estimators by name, with formula and source",
    describe=_describe(
        "List the estimators that have names: what they compute, and where that comes from.  Each name is what --estimator of "
        "`grpo-theory plan` takes, and `estimator` of every function.  A WORD is looked for in names, formulas and sources.",
        "list only estimators that contain this word, such as trl or 'ddof 1'",
    ),
    run=_list_estimators,
)
problems_command = SimpleNamespace(
    HELP="list the gallery's problems, with their sizes and what they are for",
    describe=_describe(
        "List the problems of the gallery, which `gt.gallery.problem(NAME)` makes: prompts, responses to each, parameters, "
        "expected reward at the start, and what each is for.  With a WORD, only problems whose name, tags or sentence contain it "
        "are listed.",
        "list only problems that contain this word, such as chain or training",
    ),
    run=_list_problems,
)
