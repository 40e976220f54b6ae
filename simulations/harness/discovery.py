"""The studies, found in their folders."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import simulations
from simulations.harness.study import Study

APART = ("harness", "claims")
"""Folders that hold no studies."""


@cache
def studies() -> dict[str, Study]:
    """Return the studies by name: every module of a subject's folder that defines ``STUDY``, in alphabetical order."""
    found = {}
    for subject in iter_modules(simulations.__path__):
        if not subject.ispkg or subject.name in APART:
            continue
        package = import_module(f"simulations.{subject.name}")
        for module in iter_modules(package.__path__):
            study = getattr(import_module(f"{package.__name__}.{module.name}"), "STUDY", None)
            if study is not None:
                found[study.name] = study
    return found


def study_in(module: str) -> Study:
    """Return the study that a module defines."""
    return import_module(module).STUDY
