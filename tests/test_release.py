"""What a release says of itself agrees: versions, Python versions, targets that workflows call, and what is supported."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

import grpo_theory as gt

TOP = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((TOP / ".github" / "workflows").glob("*.yml"))
SETUP = configparser.ConfigParser()
SETUP.read(TOP / "setup.cfg")


def pythons():
    return re.findall(r"Python :: (3\.\d+)", SETUP["metadata"]["classifiers"])


def test_one_version_everywhere():
    citation = yaml.safe_load((TOP / "CITATION.cff").read_text())
    assert gt.__version__ == SETUP["metadata"]["version"] == citation["version"]
    assert f"## {gt.__version__}" in (TOP / "CHANGELOG.md").read_text()


def test_supported_pythons_are_those_that_are_tested_and_documented():
    jobs = yaml.safe_load((TOP / ".github/workflows/tests.yml").read_text())["jobs"]
    assert jobs["platforms"]["strategy"]["matrix"]["python"] == pythons()
    assert set(jobs["windows"]["strategy"]["matrix"]["python"]) <= set(pythons())
    assert f"| Python | {', '.join(pythons())} |" in (TOP / "docs/reproducing.md").read_text()
    assert SETUP["options"]["python_requires"] == f">={pythons()[0]}"
    assert re.search(r"^numba>=[\d.]+$", SETUP["options"]["install_requires"], re.MULTILINE), "public numba has no upper bound"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(path):
    targets = re.search(r"^\.PHONY: (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)[1].split()
    text = path.read_text()
    assert yaml.safe_load(text)["jobs"]
    listed = [one for line in re.findall(r"target: \[(.*)\]", text) for one in line.split(", ")]
    called = {*re.findall(r"run: make ([a-z]+)", text), *listed}
    assert called
    assert called <= set(targets)
