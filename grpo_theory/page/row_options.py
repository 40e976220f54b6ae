"""Options that say which rows and rewards of a log are read, the same for every command that reads one."""

import argparse
from typing import Any

from grpo_theory.user_text import printable


def add_rows(group: argparse._ArgumentGroup) -> None:
    """Describe the options that the messages of `gt.read_rollouts` recommend: --where, --group-of and --unscored."""
    group.add_argument(
        "--where",
        metavar="KEY=VALUE",
        action="append",
        help="only rows with this value in a column, or files whose path says so (step=3, path=*train*); several all hold",
    )
    group.add_argument("--group-of", type=int, metavar="N", help="N rows of a prompt one after another are a group")
    group.add_argument(
        "--unscored",
        choices=("error", "leave", "zero"),
        default="error",
        help="rows without a reward: an error, leave them out and count them, or a reward of 0 (default: error)",
    )


def chosen_rows(options: argparse.Namespace) -> dict[str, Any]:
    """Return what these options say as arguments of `gt.read_rollouts`: where, group_of and unscored."""
    return {"where": wanted_of(options.where), "group_of": options.group_of, "unscored": options.unscored}


def wanted_of(given: list[str] | None) -> dict[str, object]:
    """Return what --where says: values by column, several of one column in a list."""
    wanted: dict[str, object] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise ValueError(f"--where must be KEY=VALUE, as split=train, got {printable(one)}")
        before = wanted.get(key, [])
        wanted[key] = [*before, value] if isinstance(before, list) else value
    return wanted


def rewards_of(given: list[str] | None) -> str | list[str] | dict[str, float] | None:
    """Return what --reward says: a column, columns to be added up, or their weights."""
    if given is None:
        return None
    weights: dict[str, float] = {}
    weighed = False
    for one in given:
        path, equals, weight = one.rpartition("=")
        try:
            weights[path if equals else one] = float(weight) if equals else 1.0
            weighed |= bool(equals)
        except ValueError:  # a column with the sign in its name
            weights[one] = 1.0
    if weighed:
        return weights
    return given[0] if len(given) == 1 else given
