"""Seals: a checksum within each file of results, over all its other bytes, which is checked before anything else is read."""

import hashlib
import json
from typing import Any

MARK = b"grpo_theory sha256 "
"""What stands in a table in front of its checksum."""
LENGTH = 64
UNSEALED = MARK + b"0" * LENGTH
"""What stands there while the checksum is taken."""


class SealError(ValueError):
    """Content that is not what was sealed: damaged, edited, or never sealed."""

    def __init__(self) -> None:
        super().__init__("its checksum is another")


def seal(content: bytes) -> bytes:
    """Return content that holds `UNSEALED` once with its own checksum in the place of the zeros."""
    return content.replace(UNSEALED, MARK + _sum(content))


def check_seal(content: bytes) -> None:
    """Raise a SealError unless the content is as it was sealed: no parser sees a byte that nobody wrote."""
    head, mark, tail = content.rpartition(MARK)
    if not mark or tail[:LENGTH] != _sum(head + UNSEALED + tail[LENGTH:]):
        raise SealError


def sealed_json(body: Any) -> bytes:
    """Return a body as JSON, its checksum beside it."""
    return json.dumps({"sha256": _sum_of_body(body), "body": body}).encode()


def opened_json(content: bytes) -> Any:
    """Return the body of what `sealed_json` wrote.

    Raises
    ------
    ValueError
        If it is anything else, or damaged.
    """
    record = json.loads(content)
    if not isinstance(record, dict) or set(record) != {"sha256", "body"} or record["sha256"] != _sum_of_body(record["body"]):
        raise SealError
    return record["body"]


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _sum_of_body(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
