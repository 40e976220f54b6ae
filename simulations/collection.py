"""The studies of this checkout, and the catalogue of what they state."""

from collections.abc import Mapping

from grpo_theory.evidence import Statement
from grpo_theory.harness.study import Study
from grpo_theory.harness.study_file import Collection, collection_of


def collection() -> Collection:
    """Return all that is judged together here."""
    return collection_of(__name__.partition(".")[0])


def studies() -> Mapping[str, Study]:
    """Return the studies by their names."""
    return collection().studies


def catalogue() -> Mapping[str, Statement]:
    """Return the statements by their ids, in the order of the papers."""
    return collection().statements
