"""The page that lists every public name, and the evidence below the docstrings of intervals."""

import inspect
import re
from importlib import import_module

import grpo_theory as gt
from docs.making.evidence import measured
from docs.making.places import write
from grpo_theory.estimation.trainers import CONVENTIONS
from grpo_theory.page.digest import cell

SUBPACKAGES = {
    "problem": "Problems: bandits, policies, the gallery",
    "problem.gallery": "The gallery of problems",
    "estimation": "Estimators: advantages, ratios, clips, aggregation, KL terms",
    "logs": "Logs: readers of what trainers write",
    "exact": "Exact: the truth, without randomness",
    "theory": "Theory: predictions, each with its theorem",
    "simulate": "Simulation",
    "intervals": "Confidence intervals",
    "laboratory": "The coverage laboratory",
    "evidence": "Evidence: claims and verdicts",
    "evidence.reading": "Evidence read off the rows of a table",
    "harness": "Studies of your own",
    "plan": "Plans",
    "checks": "Checks of a trainer from its log",
    "live": "Advice while training runs",
    "page": "Plans as text, web page and JSON",
    "plot": "Pictures of results",
    "language_model": "Sketches of a language model's scores",
    "data": "Data",
}


def write_reference() -> None:
    """Write the page that lists what `gt.` and each subpackage offer, and for each a page of their docstrings.

    A page for each name would make the tree beside every page a list of hundreds, which takes longer to write than the pages.
    """
    parts = ["# Reference", ""]
    listed = public_names()
    for module, names in listed.items():
        title = SUBPACKAGES.get(module.partition(".")[2], "What `gt.` offers")
        things = {name: getattr(import_module(module), name) for name in names}
        kinds = {
            name: "class" if inspect.isclass(one) else "function" if callable(one) else "data" for name, one in things.items()
        }
        told = "".join(f".. auto{kind}:: {name}\n{'   :members:' * (kind == 'class')}\n\n" for name, kind in kinds.items())
        table = "\n".join([".. autosummary::", "", *(f"   {name}" for name in names)]) if names else ""
        start = f"```{{eval-rst}}\n.. currentmodule:: {module}\n"
        parts.append(f"## {title}\n\n{start}{table}\n```\n")
        write(f"api/{module}.md", f"# {title}\n\n{start}\n{told}```\n")
    pages = "\n".join(f"api/{module}" for module in listed)
    write("api.md", "\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{pages}\n```", ""]))


def public_names() -> dict[str, list[str]]:
    """Return the public names by the module that offers them: those of `gt.` first, and of each subpackage the others."""
    offered = {name for name in gt.__all__ if not inspect.ismodule(getattr(gt, name))}
    found = {"grpo_theory": sorted(offered, key=lambda name: (name.lower(), name))}
    for subpackage in SUBPACKAGES:
        if subpackage.partition(".")[0] in {*gt.__all__, "problem"}:
            module = import_module(f"grpo_theory.{subpackage}")
            names = [name for name in dir(module) if not name.startswith("_") and not inspect.ismodule(getattr(module, name))]
            if not hasattr(module, "__path__"):  # a file: what it imports itself is no part of what it offers
                names = [name for name in names if getattr(getattr(module, name), "__module__", "") == module.__name__]
            found[module.__name__] = [name for name in names if name not in offered]
    return found


def conventions() -> str:
    """Return the table of what trainers compute: each name with its formula and source."""
    rows = [f"| `{name}` | {cell(one.source)} |" for name, one in sorted(CONVENTIONS.items())]
    return "\n".join(["| name | what it computes, and where |", "|---|---|", *rows, ""])


def escape(text: str) -> str:
    """Return plain text as reStructuredText: outside of backticks, stars, bars and final underscores are escaped."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<!\*)\*(?!\*)|\||(?<=\w)_(?!\w)", r"\\\g<0>", parts[at])
    return "`".join(parts)


def escape_docstring(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Escape what docstrings mean literally (a handler of "autodoc-process-docstring", before numpydoc's)."""
    lines[:] = [line if line.lstrip().startswith(">>>") else escape(line) for line in lines]


def add_measured(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Add to the docstrings of intervals and plans what was measured to be covered (a handler of "autodoc-process-docstring")."""
    if what == "function" and name.startswith(("grpo_theory.intervals.", "grpo_theory.plan.")):
        lines += measured(name.rpartition(".")[2])
