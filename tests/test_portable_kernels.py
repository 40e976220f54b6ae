"""A user's kernels in other processes: their file's text travels with the work, and what comes back is the same to the bit."""

import dataclasses
import importlib
import operator
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.estimation import SourceFile

SIZES = {"batch_size": 2, "group_size": 4}
KERNELS = '''
import numpy as np
import grpo_theory as gt

SHARE = 0.25


@gt.estimator("portable", parameters={"weight": 0.7}, minimum_group_size=2)
def portable(batch, advantages):
    """A = Z - w of the mean of the group's other rewards."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum()
        for g in range(batch.rewards.shape[1]):
            others = (total - batch.rewards[b, g]) / (batch.rewards.shape[1] - 1)
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * others + SHARE


def halving(ratios, length, positive, widths, weights):
    """Weight r/2 beyond the clip."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i] if ratios[t, i] <= 1.0 + widths[1] else 0.5 * ratios[t, i]


halved = gt.compose("halved", advantage="rloo", ratio="token", clip=gt.Clip("halving", halving, high=0.1))
'''


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Processes that have imported nothing, as on another machine, with a folder for temporary files of their own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(2, get_context("spawn")) as made:
        patch.setenv("TMPDIR", str(folder))
        patch.delenv("NUMBA_CACHE_DIR", raising=False)
        yield made


@pytest.fixture
def kernels(registry, tmp_path):
    """The file of kernels, run here and, as far as other processes can tell, moved away."""
    path = tmp_path / "portable_of_mine.py"
    path.write_text(KERNELS)
    source = SourceFile.read(path)
    source.load()
    yield dataclasses.replace(source, path=str(tmp_path / "moved" / "portable_of_mine.py"))
    del sys.modules["portable_of_mine"]


@pytest.mark.parametrize("name", ["portable", "halved", "changed", "tic_grpo"])
def test_an_estimator_goes_to_another_process_as_an_argument(kernels, pool, name):
    """It need not be registered there: its file, and those of its parts, come with it."""
    estimator = gt.estimators()["portable"].with_parameters(weight=0.2) if name == "changed" else gt.estimators()[name]
    facts = operator.attrgetter("name", "description", "reads", "couples_groups", "advantage.minimum_group_size", "clip.high")
    assert pool.submit(facts, estimator).result() == facts(estimator)
    problem = gt.gallery.problem("sequence-shared")
    where = {**SIZES, "behaviour": 0.5 * problem.theta}
    exact = pool.submit(gt.gradient_mse, problem, problem.theta, estimator, **where)
    drawn = pool.submit(gt.simulate_gradients, problem, problem.theta, [estimator], **where, replications=500, rng=3)
    assert exact.result() == gt.gradient_mse(problem, problem.theta, estimator, **where)
    own = gt.simulate_gradients(problem, problem.theta, [estimator], **where, replications=500, rng=3)
    np.testing.assert_array_equal(drawn.result().mse, own.mse)


RATES = "RATE = 0.25\n"
SENT = """
import grpo_theory as gt
from rates_of_mine import RATE

OWN = 0.5


@gt.estimator("sent")
def sent(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - OWN - RATE
"""


def received(content):
    """Return the error of an estimator that comes as bytes."""
    problem = gt.gallery.problem("tabular")
    return gt.gradient_mse(problem, problem.theta, pickle.loads(content), **SIZES)


@pytest.mark.parametrize(("file", "old", "new"), [("sent", "OWN = 0.5", "OWN = 0.125"), ("rates", "0.25", "0.125")])
def test_an_estimator_edited_since_is_sent_as_it_is_here_or_refused(registry, tmp_path, monkeypatch, file, old, new):
    """The text that was run here travels; what it imports is read there, and a checksum of all of it tells.

    Edits change a file's size: bytecode is not read anew for another text of one second and size.
    """
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"rates": RATES, "sent": SENT}
    for name, text in texts.items():
        (tmp_path / f"{name}_of_mine.py").write_text(text)
    sent = importlib.import_module("sent_of_mine").sent
    expected = received(pickle.dumps(sent))
    (tmp_path / f"{file}_of_mine.py").write_text(texts[file].replace(old, new))
    content = pickle.dumps(sent)
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        found = fresh.submit(received, content)
        if file == "sent":
            assert found.result() == expected
        else:
            with pytest.raises(
                ValueError, match=r"(?s)the function 'sent' of .* was edited after one of the two .*start both anew"
            ):
                found.result()
    for name in texts:
        del sys.modules[f"{name}_of_mine"]
