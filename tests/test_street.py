"""The street runs one way: rooms import from rooms under them, studies and figures from none of their kind, by their source."""

import ast
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
FOLDERS = ("grpo_theory", "simulations", "paper_figures", "benchmarks")
GROUND = {"arrays", "compiler", "plain_text", "schedule", "user_text", "validation"}
STREET = (
    "problem",
    "estimation",
    "samples",
    "language_model",
    "exact",
    "theory",
    "simulate",
    "intervals",
    "laboratory",
    "evidence",
    "harness",
    "plan",
    "live",
    "checks",
    "page",
    "plot",
    "__main__",
)
PEERS = {"theory", "simulate"}
"""Neither imports the other."""
ALONE = {"evidence"}
"""Rooms above others of which they need none."""


EXEMPT = set()
"""Subpackages whose files may import each other in circles for now: none."""


def under(room):
    """Return what a room of the library may import from, itself included."""
    if room not in STREET or room in ALONE:
        return GROUND | {room}
    below = set(STREET[: STREET.index(room) + 1])
    return GROUND | {"data"} | (below - PEERS if room in PEERS else below) | {room}


def module_of(path):
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.py"))}


def imports(path):
    """Yield the modules that a file imports, or imports names from; a name that is a module counts for that module."""
    package = ".".join(path.parent.relative_to(TOP).parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = resolve_name(f"{'.' * node.level}{node.module or ''}", package)
            yield from (f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.fixture(scope="module")
def imported():
    """What every module imports."""
    return {module: set(imports(path)) for module, path in FILES.items()}


@cache
def defining(folder, *names):
    """Return the modules of a folder that assign one of some names, or define a function of it or under it, at the top."""
    marked = set()
    for module, path in FILES.items():
        if module.split(".")[0] == folder:
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assigned = {getattr(one, "id", "") for node in body if isinstance(node, ast.Assign) for one in node.targets}
            functions = [node for node in body if isinstance(node, ast.FunctionDef)]
            under_it = {getattr(getattr(one, "func", one), "id", "") for node in functions for one in node.decorator_list}
            if not {*names}.isdisjoint(assigned | under_it | {node.name for node in functions}):
                marked.add(module)
    return marked


STUDIES = ("simulations", "check", "simulate")
"""What the files of studies define."""


@pytest.mark.parametrize("room", sorted({module.split(".")[1] for module in FILES if module.startswith("grpo_theory.")}))
def test_a_room_imports_only_from_rooms_under_it(room, imported):
    own = [module for module in FILES if module.split(".")[:2] == ["grpo_theory", room]]
    assert room in {*GROUND, "data", *STREET}, f"{room} has no floor: give it one in STREET"
    for module in own:
        for found in imported[module]:
            top, _, rest = found.partition(".")
            assert top not in ("simulations", "paper_figures", "benchmarks", "tests", "tools"), f"{module} imports {found}"
            if top == "grpo_theory":
                assert rest.split(".")[0] in under(room), f"{module} imports {found}"


def circle(imported):
    """Return modules that import each other in a circle, or only modules of one, among what each imports; empty if none does."""
    left = {module: set(names) & set(imported) - {module} for module, names in imported.items()}
    while True:
        free = {module for module, names in left.items() if not names & set(left)}
        if not free:
            return set(left)
        left = {module: names for module, names in left.items() if module not in free}


SUBPACKAGES = sorted({module.split(".")[1] for module in FILES if module.count(".") > 1 and module.startswith("grpo_theory.")})


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_the_files_of_a_subpackage_import_each_other_in_no_circle(subpackage, imported):
    """An import inside a function counts too."""
    own = {module: imported[module] for module in FILES if module.split(".")[:2] == ["grpo_theory", subpackage]}
    assert len(own) > 1
    if subpackage not in EXEMPT:
        assert circle(own) == set()


def test_circles_are_seen():
    imports_of = {"a": {"b", "numpy"}, "b": {"c"}, "c": {"b"}, "d": set(), "e": {"d", "e"}}
    assert circle(imports_of) == {"a", "b", "c"}
    assert circle({**imports_of, "c": {"d"}}) == set()
    assert set(SUBPACKAGES) > {"plan", "page", *EXEMPT}


def test_the_floors_are_what_they_are_said_to_be(imported):
    """The sets that the test above allows, for a floor in the middle, for the peers, and for those apart."""
    assert under("samples") == GROUND | {"data", "problem", "estimation", "samples"}
    assert "simulate" not in under("theory")
    assert "theory" not in under("simulate")
    assert under("evidence") == GROUND | {"evidence"}
    assert under("harness") >= {"evidence", "laboratory"}
    assert not {"plan", "page"} & under("harness")
    assert under("data") == GROUND | {"data"}
    seen = [found for module in FILES for found in imported[module] if found.startswith("grpo_theory.")]
    assert len(seen) > 300, "imports are not read"
    assert imported["grpo_theory.simulate"] <= {module for module in FILES if module.startswith("grpo_theory.simulate.")}


def test_no_figure_imports_a_figure(imported):
    marked = defining("paper_figures", "PLACE")
    assert len(marked) >= 40
    assert [module for module in FILES if module.startswith("paper_figures") and imported[module] & (marked - {module})] == []


def test_a_study_takes_only_plain_functions_and_constants_from_one_beside_it():
    """Never its checks and runs, which would be judged twice, and nothing from another subject's study."""
    studies, wrong = defining(*STUDIES), []
    assert len(studies) >= 90
    for module in studies:
        for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in studies:
                body = ast.parse(FILES[node.module].read_text(encoding="utf-8")).body
                parts = {one.name for one in body if isinstance(one, ast.FunctionDef) and _is_part(one)}
                beside = node.module.rpartition(".")[0] == module.rpartition(".")[0]
                wrong += [(module, one.name) for one in node.names if one.name in parts or not beside]
    assert wrong == []


def _is_part(function):
    names = {getattr(getattr(one, "func", one), "id", "") for one in function.decorator_list}
    return not names.isdisjoint({"check", "run", "rows"})


def test_studies_know_no_figures_and_what_they_share_knows_no_study(imported):
    subjects = {module.split(".")[1] for module in defining(*STUDIES)}
    assert subjects == {"gradient", "training", "limit", "coverage", "sequence", "normalisation", "plan", "length", "runs"}
    for module in FILES:
        parts = module.split(".")
        if parts[0] == "simulations":
            assert not any(found.startswith("paper_figures") for found in imported[module]), module
        if parts[0] == "simulations" and len(parts) == 2 and parts[1] not in subjects:
            assert not any(found.startswith(f"simulations.{name}") for found in imported[module] for name in subjects), module


def test_figures_read_tables_and_never_simulate(imported):
    """They may name what a study was made with: its constants, and nothing that computes."""
    for module in defining("paper_figures", "PLACE"):
        tree = ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8")))
        froms = [node for node in tree if isinstance(node, ast.ImportFrom) and str(node.module).startswith("simulations")]
        assert all(one.name.isupper() for node in froms for one in node.names), module
        found = {name for name in imported[module] if name.startswith(("simulations", "grpo_theory.simulate"))}
        assert found <= {node.module for node in froms}, module


@pytest.mark.parametrize("room", ["evidence", "harness", "page"])
def test_no_two_files_of_a_room_need_each_other(room, imported):
    """Neither at once nor in a circle, functions' own imports included; a package's face counts for nothing that it lists."""
    own = {module for module in FILES if module.startswith(f"grpo_theory.{room}.")}
    left = {module: imported[module] & own - {module} for module in own}
    while free := [module for module, needed in left.items() if not needed & set(left)]:
        for module in free:
            del left[module]
    assert not left, f"in a circle, or above one: {sorted(left)}"


@pytest.mark.parametrize("package", sorted(module for module, path in FILES.items() if path.name == "__init__.py"))
def test_no_file_has_the_name_of_what_its_package_exports(package):
    """A folder or file of the name of a function would be hidden by it, or hide it."""
    folder = FILES[package].parent
    children = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    for path in (folder / "__init__.py", folder / "__init__.pyi"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert node.name not in children
            elif isinstance(node, ast.ImportFrom):
                itself = node.module in (None, package)  # `from . import room`: the file under its own name
                names = [alias.asname or alias.name for alias in node.names]
                hidden = [name for name in names if name in children and not itself]
                assert not hidden, f"{package} exports {hidden[0]}, and has a file or folder of that name"


# ---- the simulator: one pipeline, a folder for each step

SIMULATOR = "grpo_theory.simulate"
PIPELINE = {"draw": 0, "advantage": 1, "covector": 2, "observe": 3, "update": 3}
"""The floors of its folders; the two highest are peers, and the drivers stand above them all."""
DRIVERS = 4
OF_SIMULATOR = {module: path for module, path in FILES.items() if module.startswith(f"{SIMULATOR}.")}


def floor(module):
    folder = module.removeprefix(f"{SIMULATOR}.").split(".")[0]
    return PIPELINE.get(folder, DRIVERS)


def test_the_simulator_draws_then_finds_advantages_then_covectors_then_observes_or_updates(imported):
    folders = {module.split(".")[2] for module in OF_SIMULATOR if (FILES[module].parent.name in PIPELINE)}
    assert folders == set(PIPELINE)
    for module in OF_SIMULATOR:
        for found in imported[module] & set(OF_SIMULATOR):
            folder = found.split(".")[2]
            same = folder == module.split(".")[2] or floor(found) == floor(module) == DRIVERS
            assert same or floor(found) < floor(module), f"{module} imports {found}"


def circles(edges):
    """Return the modules that import themselves by way of others."""

    def reached(start):
        seen, ahead = set(), list(edges[start])
        while ahead:
            module = ahead.pop()
            if module not in seen:
                seen.add(module)
                ahead.extend(edges.get(module, ()))
        return seen

    return {module for module in edges if module in reached(module)}


def test_no_two_files_of_the_simulator_import_each_other(imported):
    edges = {module: imported[module] & set(OF_SIMULATOR) for module in OF_SIMULATOR}
    assert sum(map(len, edges.values())) > 100
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {"b", "c"}
    assert not circles(edges)


def test_a_name_of_the_simulator_means_one_thing():
    """No class, and no function that is not private, is defined twice, but for methods of classes."""
    found = {}
    for module, path in OF_SIMULATOR.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


# ---- sizes, everywhere in the library

MOST_ARGUMENTS, MOST_FIELDS = 8, 10
PUBLIC_FUNCTIONS = {
    "compose",
    "coverage",
    "coverage_of_several",
    "read_reward_counts",
    "read_rollouts",
    "simulate_gradients",
    "simulate_iterates",
    "simulate_records",
    "simulate_training",
    "sketch",
}
"""What a user calls names every choice, by keyword, and may take more."""
PUBLIC_RECORDS = {"Advice", "Findings", "ImportanceRatios", "Moments", "SampledAnswers"}
"""What a user reads, or finds in the command's JSON, names everything that was found, and may have more."""


def definitions(kind):
    """Yield what the library defines of a kind."""
    for module, path in FILES.items():
        if module.split(".")[0] == "grpo_theory":
            yield from (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kind))


def arguments_of(node):
    """Return the number of a function's arguments, but for the object or class that has it."""
    arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(arguments) - (arguments[:1] in (["self"], ["cls"]))


def fields_of(node):
    return sum(isinstance(one, ast.AnnAssign) for one in node.body)


def test_no_internal_function_takes_more_than_eight_arguments():
    functions = list(definitions(ast.FunctionDef | ast.AsyncFunctionDef))
    assert len(functions) > 1500
    assert {one.name for one in functions if arguments_of(one) > MOST_ARGUMENTS} == PUBLIC_FUNCTIONS


def test_no_internal_record_has_more_than_ten_fields():
    records = [one for one in definitions(ast.ClassDef) if fields_of(one) > 1]
    assert len(records) > 150
    assert {one.name for one in records if fields_of(one) > MOST_FIELDS} == PUBLIC_RECORDS


def test_sizes_are_counted():
    (method,) = ast.parse("def f(self, a, /, b, *c, d, e=1): ...").body
    (record,) = ast.parse("class R:\n    a: int\n    b: int = 2\n    c = 3").body
    assert (arguments_of(method), fields_of(record)) == (4, 2)
