"""The options of commands that read a log, and what those that say which rows and rewards are read stand for."""

import argparse
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

TYPES = {"int": int, "float": float, "Path": Path}


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Describe a command by what ``options.toml`` says of it: its purpose, its options, and those of rows.

    The messages of `gt.read_rollouts` recommend the options of rows.
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
    """Return what these options say as arguments of `gt.read_rollouts`; those that are not given are left out."""
    listed = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))["rows"]
    names = [one["names"][0].removeprefix("--").replace("-", "_") for one in listed]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if "where" in given:
        given["where"] = " and ".join(f"({one})" for one in given["where"])
    if "steps" in given:
        low, dash, high = given["steps"].partition("-")
        with suppress(ValueError):  # a word, or what the reader refuses
            given["steps"] = (float(low), float(high)) if dash else float(low)
    return given
