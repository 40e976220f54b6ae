"""The street runs one way: the contracts of pyproject.toml hold, and what they cannot say, read off the sources."""

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
FOLDERS = ("grpo_theory", "simulations", "paper_figures", "benchmarks")


def module_of(path):
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    module_of(path): ast.parse(path.read_text(encoding="utf-8"))
    for folder in FOLDERS
    for path in sorted((TOP / folder).rglob("*.py"))
}


def froms(module):
    """Return what a file imports from modules of these folders: (module, name) pairs."""
    nodes = [node for node in ast.walk(TREES[module]) if isinstance(node, ast.ImportFrom) and node.module]
    pairs = [(node.module, alias.name) for node in nodes for alias in node.names]
    return [(f"{base}.{name}", "") if f"{base}.{name}" in TREES else (base, name) for base, name in pairs]


def names_of(nodes):
    """Return the names of decorators, called or not."""
    return {getattr(getattr(node, "func", node), "id", "") for node in nodes}


def defining(folder, *names):
    """Return the modules of a folder that assign one of some names, or define a function of it or under it, at the top."""
    marked = set()
    for module, tree in TREES.items():
        if module.split(".")[0] == folder:
            found = {getattr(one, "id", "") for node in tree.body if isinstance(node, ast.Assign) for one in node.targets}
            for node in tree.body:
                if isinstance(node, ast.FunctionDef):
                    found |= {node.name} | names_of(node.decorator_list)
            if found & set(names):
                marked.add(module)
    return marked


STUDIES = defining("simulations", "simulations", "check", "simulate")
FIGURES = defining("paper_figures", "PLACE")


def test_the_contracts_of_import_linter_hold():
    cli = pytest.importorskip("importlinter.cli")
    assert cli.lint_imports(config_filename=str(TOP / "pyproject.toml"), no_cache=True) == 0


def test_no_figure_imports_a_figure_and_of_studies_figures_name_constants_alone():
    assert len(FIGURES) >= 30
    wrong = [
        (module, base, name)
        for module in FIGURES
        for base, name in froms(module)
        if base in FIGURES or (base.startswith("simulations") and not name.isupper())
    ]
    assert wrong == []


def test_a_study_takes_only_plain_functions_and_constants_from_one_beside_it():
    """Never its checks and runs, which would be judged twice, and nothing from another subject's study."""
    assert len(STUDIES) >= 90
    wrong = []
    for module in STUDIES:
        for base, name in froms(module):
            if base in STUDIES:
                judged = {
                    one.name
                    for one in TREES[base].body
                    if isinstance(one, ast.FunctionDef) and names_of(one.decorator_list) & {"check", "run", "rows"}
                }
                beside = base.rpartition(".")[0] == module.rpartition(".")[0]
                wrong += [(module, base, name)] if name in judged or not beside else []
    assert wrong == []


def test_what_studies_share_knows_no_study():
    subjects = {module.split(".")[1] for module in STUDIES}
    shared = [module for module in TREES if module.startswith("simulations.") and module.split(".")[1] not in subjects]
    assert len(shared) > 5
    assert [
        (one, base)
        for one in shared
        for base, _ in froms(one)
        if base.split(".")[:1] == ["simulations"] and base.split(".")[1] in subjects
    ] == []


def test_no_file_has_the_name_of_what_its_package_exports():
    """A folder or file of the name of a function would be hidden by it, or hide it."""
    hidden = []
    for package in (module for module in TREES if (TOP / module.replace(".", "/") / "__init__.py").exists()):
        folder = TOP / package.replace(".", "/")
        children = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
        for path in folder.glob("__init__.py*"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                names = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
                if isinstance(node, ast.ImportFrom) and node.module not in (None, package):
                    names = {alias.asname or alias.name for alias in node.names}
                hidden += [(package, name) for name in names & children]
    assert hidden == []


def test_a_name_of_the_simulator_means_one_thing():
    """No class or function of the top level is defined twice."""
    found = {}
    for module, tree in TREES.items():
        if module.startswith("grpo_theory.simulate."):
            for node in tree.body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    found.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


# ---- sizes, everywhere in the library

MANY_ARGUMENTS = {
    *("compose", "coverage", "coverage_of_several", "read_reward_counts", "read_rollouts", "simulate_gradients"),
    *("simulate_iterates", "simulate_records", "simulate_training", "sketch"),
}
"""What a user calls names every choice, by keyword, and may take more than eight arguments."""
MANY_FIELDS = {"Advice", "Findings", "ImportanceRatios", "Moments", "SampledAnswers", "Study"}
"""What a user reads, or finds in the command's JSON, names everything that was found, and may have more than ten fields."""


def arguments_of(node):
    """Return the number of a function's arguments, but for the object or class that has it."""
    arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(arguments) - (arguments[:1] in (["self"], ["cls"]))


def fields_of(node):
    return sum(isinstance(one, ast.AnnAssign) for one in node.body)


def test_no_internal_function_takes_more_than_eight_arguments_and_no_internal_record_has_more_than_ten_fields():
    nodes = [node for module, tree in TREES.items() if module.startswith("grpo_theory.") for node in ast.walk(tree)]
    long = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and arguments_of(node) > 8}
    wide = {node.name for node in nodes if isinstance(node, ast.ClassDef) and fields_of(node) > 10}
    assert long | wide
    assert (long - MANY_ARGUMENTS, wide - MANY_FIELDS) == (set(), set())
    (method,) = ast.parse("def f(self, a, /, b, *c, d, e=1): ...").body
    (record,) = ast.parse("class R:\n    a: int\n    b: int = 2\n    c = 3").body
    assert (arguments_of(method), fields_of(record)) == (4, 2)
