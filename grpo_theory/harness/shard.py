"""Which part of a run one job of an array computes, and where.

A shard has a folder of its own under the results, so that shards that share a disk do not share a lock.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = "shards"
"""Where shards' folders stand within the results."""


@dataclass(frozen=True)
class Shard:
    """One of n equal parts of a run, numbered from 1."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read i/n.

        Raises
        ------
        argparse.ArgumentTypeError
            Unless 1 <= i <= n.
        """
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise argparse.ArgumentTypeError(f"must be i/n with 1 <= i <= n, as 3/8, got {text!r}")
        return cls(int(found[1]), int(found[2]))

    def folder(self, root: Path) -> Path:
        """Return the shard's folder within the results."""
        return root / FOLDER / f"{self.number}-of-{self.parts}"


def shard_folders(root: Path) -> list[Path]:
    """Return the folders of all shards within the results."""
    return sorted(path for path in (root / FOLDER).glob("*-of-*") if path.is_dir())
