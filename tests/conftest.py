"""Options and fixtures of the tests."""

import re

import hypothesis
import pytest

from grpo_theory.estimation import registry as registry_module


def pytest_addoption(parser):
    parser.addoption(
        "--vary-seed",
        type=int,
        default=0,
        metavar="N",
        help="shift the fixed seeds of the sampling tests by N, to measure how often they fail",
    )


def pytest_configure(config):
    fixed = config.getoption("--vary-seed") == 0
    hypothesis.settings.register_profile("tests", derandomize=fixed, deadline=None, max_examples=50, database=None)
    hypothesis.settings.load_profile("tests")


@pytest.fixture
def seed(request):
    """Turn a test's fixed number into its seed."""
    shift = request.config.getoption("--vary-seed")
    return lambda number: number + 1_000_003 * shift


@pytest.fixture
def check_refused():
    """Assert that each call is refused with a kind of error in words that its pattern finds; list all that are not."""

    def check(*cases, error=ValueError):
        wrong = []
        for call, pattern in cases:
            try:
                wrong.append((pattern, call()))
            except error as refusal:
                wrong += [] if re.search(pattern, str(refusal)) else [(pattern, str(refusal))]
        assert wrong == []

    return check


@pytest.fixture
def one_line(capsys):
    """Return a function that runs a command, which must end with a status and one line of error, and returns that line."""

    def run(main, *words, status=2):
        capsys.readouterr()
        assert main([str(word) for word in words]) == status
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        return error

    return run


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A copy of the registry: what a test registers is forgotten after it, whichever test the same process runs next."""
    copy = dict(registry_module._REGISTRY)
    monkeypatch.setattr(registry_module, "_REGISTRY", copy)
    return copy
