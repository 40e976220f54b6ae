"""The street runs one way: the contracts of pyproject.toml hold, and what they cannot say, read off the sources."""

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
PATHS = [path for folder in ("grpo_theory", "simulations", "paper_figures") for path in sorted((TOP / folder).rglob("*.py"))]
TREES = {
    ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
    for path in PATHS
}


def froms(module):
    """Return what a file imports from modules of these folders: (module, name) pairs."""
    nodes = [node for node in ast.walk(TREES[module]) if isinstance(node, ast.ImportFrom) and node.module]
    pairs = [(node.module, alias.name) for node in nodes for alias in node.names]
    return [(f"{base}.{name}", "") if f"{base}.{name}" in TREES else (base, name) for base, name in pairs]


def functions(module, *decorators):
    """Return the functions at the top of a file that have one of some decorators, or if none is asked for all."""
    found = set()
    for node in TREES[module].body:
        if isinstance(node, ast.FunctionDef):
            marks = {getattr(getattr(one, "func", one), "id", "") for one in node.decorator_list}
            if not decorators or marks & set(decorators):
                found.add(node.name)
    return found


def assigns(module, name):
    return any(isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name for node in TREES[module].body)


STUDIES = {one for one in TREES if one.startswith("simulations.") and (functions(one, "check") or {"simulate"} & functions(one))}
FIGURES = {one for one in TREES if one.startswith("paper_figures.") and assigns(one, "PLACE")}


def test_the_contracts_of_import_linter_hold():
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(TOP / "pyproject.toml"), no_cache=True) == 0


def test_no_figure_imports_a_figure_and_of_studies_figures_name_constants_alone():
    assert len(FIGURES) >= 30
    pairs = [(module, base, name) for module in FIGURES for base, name in froms(module)]
    assert [one for one in pairs if one[1] in FIGURES or (one[1].startswith("simulations") and not one[2].isupper())] == []


def test_a_study_takes_only_plain_functions_and_constants_from_one_beside_it_and_what_studies_share_knows_none():
    """Never its checks and runs, which would be judged twice, and nothing from another subject's study."""
    assert len(STUDIES) >= 90
    pairs = [(module, base, name) for module in STUDIES for base, name in froms(module) if base in STUDIES]
    beside = [(module, base) for module, base, _ in pairs if base.rpartition(".")[0] != module.rpartition(".")[0]]
    assert (beside, [one for one in pairs if one[2] in functions(one[1], "check", "run", "rows")]) == ([], [])
    subjects = {module.split(".")[1] for module in STUDIES}
    shared = [module for module in TREES if module.startswith("simulations.") and module.split(".")[1] not in subjects]
    assert len(shared) > 5
    assert [
        (one, base) for one in shared for base, _ in froms(one) if base.split(".")[1:2] and base.split(".")[1] in subjects
    ] == []


MANY_ARGUMENTS = {
    *("compose", "coverage", "coverage_grid", "coverage_of_several", "mean_path", "read_rollouts", "simulate_gradients"),
    *("simulate_records", "simulate_training", "sketch"),
}
"""What a user calls names every choice, by keyword, and may take more than eight arguments."""
MANY_FIELDS = {"Advice", "Coverage", "Findings", "ImportanceRatios", "Moments", "SampledAnswers", "Study"}
"""What a user reads, or finds in the command's JSON, names everything that was found, and may have more than ten fields."""


def test_no_internal_function_takes_more_than_eight_arguments_and_no_internal_record_has_more_than_ten_fields():
    long, wide = set(), set()
    for node in (node for module, tree in TREES.items() if module.startswith("grpo_theory.") for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            long |= {node.name} if len(given) - (given[:1] in (["self"], ["cls"])) > 8 else set()
        if isinstance(node, ast.ClassDef) and sum(isinstance(one, ast.AnnAssign) for one in node.body) > 10:
            wide.add(node.name)
    assert long & MANY_ARGUMENTS
    assert wide & MANY_FIELDS
    assert (long - MANY_ARGUMENTS, wide - MANY_FIELDS) == (set(), set())
