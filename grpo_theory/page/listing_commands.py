"""`grpo-theory estimators` and `grpo-theory problems`: every estimator that has a name, and every problem of the gallery.

What is slow to import is imported after the command line is understood.
"""

import argparse
import textwrap
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

ESTIMATORS = (
    "List the estimators that have names: what they compute, and where that comes from.  Each name is what --estimator of "
    "`grpo-theory plan` takes, and `estimator` of every function.  A WORD is looked for in names, formulas and sources."
)
PROBLEMS = (
    "List the problems of the gallery, which `gt.gallery.problem(NAME)` makes: prompts, responses to each, parameters, expected "
    "reward at the start, and what each is for.  With a WORD, only problems whose name, tags or sentence contain it are listed."
)


def _describe(what: str, example: str, parser: argparse.ArgumentParser) -> None:
    parser.description = what
    told = f"list only those that contain this word, such as {example}"
    parser.add_argument("word", nargs="?", default="", metavar="WORD", help=told)


def _list(known: Callable[[], dict[str, str]], options: argparse.Namespace) -> int:
    """Print names with their descriptions, where either has the word that is asked for; the status is 1 if none has."""
    every = known()
    shown = {name: text for name, text in every.items() if options.word.lower() in f"{name} {text}".lower()}
    margin = 2 + max(map(len, shown), default=0)
    for name, text in shown.items():
        print(textwrap.fill(text, 120, initial_indent=f"{name:<{margin}}", subsequent_indent=" " * margin))
    if not shown:
        print(f"none of {len(every)} has {options.word!r}")
    return 0 if shown else 1


def _estimators() -> dict[str, str]:
    from grpo_theory.estimation import estimators

    return {name: one.description for name, one in estimators().items()}


def _problems() -> dict[str, str]:
    import pandas as pd

    from grpo_theory.problem import gallery
    from grpo_theory.validation import counted

    known = {}
    for name, row in gallery.describe().iterrows():
        responses = "too many responses to list" if pd.isna(row["responses"]) else f"{row['responses']} responses each"
        sizes = (
            f"{counted(int(row['prompts']), 'prompt')}, {responses}, {row['parameters']} parameters, reward {row['reward']:.3f}"
        )
        known[str(name)] = f"{row['about']} ({row['tags']}: {sizes})"
    return known


estimators_command = SimpleNamespace(
    HELP="list the estimators by name, with formula and source",
    describe=partial(_describe, ESTIMATORS, "trl or 'ddof 1'"),
    run=partial(_list, _estimators),
)
problems_command = SimpleNamespace(
    HELP="list the gallery's problems, with their sizes and what they are for",
    describe=partial(_describe, PROBLEMS, "chain or training"),
    run=partial(_list, _problems),
)
