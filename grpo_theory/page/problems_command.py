"""`grpo-theory problems`: every problem of the gallery, with its sizes and what it is for.

What is slow to import is imported after the command line is understood.
"""

import argparse

from grpo_theory.page.estimators_command import print_table

HELP = "list the gallery's problems, with their sizes and what they are for"
DESCRIPTION = (
    "List the problems of the gallery, which `gt.gallery.problem(NAME)` makes: prompts, responses to each, parameters, expected "
    "reward at the start, and what each is for.  With a WORD, only problems whose name, tags or sentence contain it are listed."
)


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommand and its options."""
    parser.description = DESCRIPTION
    said = "list only problems that contain this word, such as chain or training"
    parser.add_argument("word", nargs="?", default="", metavar="WORD", help=said)


def run(options: argparse.Namespace) -> int:
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
    return print_table(known, options.word)
