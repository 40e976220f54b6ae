"""The options of commands that read a log, and what those that say which rows and rewards are read stand for."""

import argparse
import tomllib
from pathlib import Path
from typing import Any

from grpo_theory.user_text import printable

TYPES = {"int": int, "float": float, "Path": Path}


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Describe a command by what ``options.toml`` says of it: its purpose, its options, and those of rows.

    The messages of `gt.read_rollouts` recommend the options of rows: --where, --group-of and --unscored.
    """
    read = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
    own = read[command]
    parser.description = own["description"]
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    groups |= {title: parser.add_argument_group(title, words or None) for title, words in own["groups"].items()}
    for listed in own["option"]:
        group = groups[listed.pop("group", "")]
        for option in [listed] if listed["names"] else read["rows"]:
            kind: dict[str, Any] = {"type": TYPES[option.pop("type")]} if "type" in option else {}
            group.add_argument(*option.pop("names"), **kind, **option)


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
