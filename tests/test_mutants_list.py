"""The list of faults that `make mutants` puts into the code: each stands where the list says, once."""

import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]


def test_every_fault_has_its_place():
    lists = sorted((TOP / "tests" / "mutants").glob("*.toml"))
    faults = [one for path in lists for one in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]
    lost = [
        f"{one['file']}: {one['old']}" for one in faults if (TOP / one["file"]).read_text(encoding="utf-8").count(one["old"]) != 1
    ]
    assert lost == []
    absent = {test.partition("::")[0] for one in faults for test in one["tests"]}
    assert {name for name in absent if not (TOP / name).exists()} == set()
