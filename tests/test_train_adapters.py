"""What trains adapters in all blocks, against the model's code and dense gradients (marker `reference`: needs torch)."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from small_llama import small_llama

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOOLS = Path(__file__).resolve().parents[1] / "tools" / "language_model"
BEGINNINGS, ENDS = [[5, 6, 7, 8], [9, 2]], [[[11, 3], [4]], [[1, 2, 3], [4, 30]]]
ANSWERS = np.array([3, 0, 9, 1])


@pytest.fixture
def tools(monkeypatch):
    """Import the scripts."""
    monkeypatch.syspath_prepend(TOOLS)
    return {name: importlib.import_module(name) for name in ("adapters", "adapter_arms", "train_adapters", "score_products")}


@pytest.fixture(scope="module")
def model():
    """Return a random model of two layers with the blocks' shape."""
    return small_llama(0.05)


@pytest.fixture
def started(tools, model):
    """Return the blocks, questions, and adapters of two runs that have moved."""
    script = tools["train_adapters"]
    blocks = script.read_blocks(model, list(range(32)), list(range(10)))
    asked = script.pack(BEGINNINGS, ENDS, {token: token for token in range(32)})
    questions = script.Questions(vars(asked), torch.tensor(ANSWERS), torch.arange(4), "cpu")
    adapters = tools["adapters"].fresh(blocks, [0, 1])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in adapters.items():
            if name.endswith("up"):
                value.copy_(0.02 * torch.randn(value.shape, generator=generator))
    return blocks, questions, adapters


def merged(model, adapters, run):
    """Return a copy of the model whose matrices have the adapters of a run added."""
    copy = transformers.LlamaForCausalLM(model.config).eval()
    copy.load_state_dict(model.state_dict())
    at = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    with torch.no_grad():
        for row, layer in enumerate(copy.model.layers):
            for name in ("query", "key", "value", "out", "gate", "up", "down"):
                matrix = getattr(layer.self_attn, at[name]) if name in at else getattr(layer.mlp, f"{name}_proj")
                matrix.weight += 2.0 * adapters[f"{name}, up"][row, run] @ adapters[f"{name}, down"][row, run]
    return copy


@pytest.mark.parametrize("run", [0, 1])
def test_a_run_is_the_model_with_its_adapters_merged(model, started, run):
    blocks, questions, adapters = started
    found = questions.logits(blocks, adapters)[run]
    own, other = merged(model, adapters, run), merged(model, adapters, 1 - run)
    texts = [BEGINNINGS[c] + end for c, ends in enumerate(ENDS) for end in ends]
    with torch.no_grad():
        expected, wrong = (
            torch.stack([each(torch.tensor([text])).logits[0, -1, :10] for text in texts]) for each in (own, other)
        )
    torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-4)
    assert (found - wrong).abs().max() > 1e-2, "the other run's adapters would show"


def test_prompts_apart_are_the_same_prompts(tools, started):
    blocks, questions, adapters = started
    one = {name: value[:, :1] for name, value in adapters.items()}
    copies = {name: value.repeat(1, 4, 1, 1) for name, value in one.items()}
    apart, _ = tools["adapters"].forward(blocks, copies, questions.asked.apart())
    torch.testing.assert_close(apart.flatten(0, 2), questions.logits(blocks, one)[0], rtol=1e-4, atol=1e-5)


def test_inner_products_are_those_of_dense_gradients(tools, started):
    blocks, questions, adapters = started
    one = {name: value[:, :1].detach().requires_grad_(True) for name, value in adapters.items()}
    inner, probabilities, _ = tools["train_adapters"].products(blocks, one, questions)
    logits = questions.logits(blocks, one)[0]
    first, second = (
        torch.autograd.grad(logits[prompt, answer], list(one.values()), retain_graph=True) for prompt, answer in ((1, 4), (2, 7))
    )
    for name, found in inner.items():
        parts = [
            (a.double() * b.double()).sum() for key, a, b in zip(one, first, second, strict=True) if key.startswith(f"{name},")
        ]
        assert found[1, 4, 2, 7] == pytest.approx(float(sum(parts)), rel=1e-4)
    np.testing.assert_allclose(probabilities, logits.detach().double().softmax(-1), atol=1e-6)


def test_steps_are_adams_each_run_with_its_rate(tools):
    generator, rates = torch.Generator().manual_seed(0), (3e-3, 1e-2)
    start = torch.randn(2, 2, 3, 4, generator=generator)
    own = {"query, up": start.clone().requires_grad_(True)}
    mine = tools["train_adapters"].Adam(own, rates)
    theirs = [start[:, run].clone().requires_grad_(True) for run in range(2)]
    others = [torch.optim.Adam([value], lr=rate, maximize=True) for value, rate in zip(theirs, rates, strict=True)]
    for power in range(4):
        gradient = 10.0**-power * torch.randn(start.shape, generator=generator)
        mine.step([gradient])
        for run, (value, other) in enumerate(zip(theirs, others, strict=True)):
            value.grad = gradient[:, run].clone()
            other.step()
    torch.testing.assert_close(own["query, up"].detach(), torch.stack(theirs, 1).detach(), rtol=1e-6, atol=1e-7)


def test_a_run_does_not_depend_on_its_batch(tools, started, monkeypatch):
    """Also not where another run of the batch leaves float32."""
    blocks, questions, _ = started
    script, arm = tools["train_adapters"], tools["adapter_arms"].Arm
    monkeypatch.setattr(script, "LOOKS", (0, 1, 3))
    arms = [
        arm("grpo", "Adam", 4, 1e30, 0),
        arm("dr_grpo", "Adam", 64, 1e-3, 1),
        arm("dr_grpo", "Adam", 8, 1e-2, 1, "by sign", 4),
    ]
    model = blocks, questions, questions
    together, alone = script.train(model, arms, (), {}), [script.train(model, [each], (), {})[0] for each in arms[1:]]
    assert together[0]["looks"][-1].tolist() == [0.0] * 4
    for one, other in zip(together[1:], alone, strict=True):
        np.testing.assert_allclose(one["looks"], other["looks"], atol=1e-5)
        assert one["looks"][-1, 0] != one["looks"][0, 0], "it was trained"


def test_an_ascent_raises_success_from_a_balanced_start(tools, started, monkeypatch):
    blocks, questions, _ = started
    script = tools["train_adapters"]
    monkeypatch.setattr(script, "ASCENT_LOOKS", (0, 1, 4))
    start = script.at_start((blocks, questions, questions))
    scales = dict(zip(start["names"].tolist(), start["scales"].tolist(), strict=True))
    found = script.ascend((blocks, questions, questions), False, scales)
    assert (np.diff(found["success"].mean(axis=1)) > 0.0).all()
    assert np.trace(found["balanced gram"][0]) / len(ANSWERS) == pytest.approx(len(scales), rel=1e-4)


def test_the_pilot_chooses_the_rates(tools):
    arms = tools["adapter_arms"]
    pilot = arms.pilot_arms()
    ends = [1.0 if arm.rate == (8e-4 if arm.group_size == 4 else 4e-4) else 0.5 for arm in pilot]
    assert arms.rates_of(ends) == pytest.approx((2e-4, 4e-4, 8e-4, 1.6e-3))
    judged = {arm.seed for batch in arms.batches(arms.rates_of(ends)) for arm in batch}
    assert not judged & {arm.seed for arm in pilot}
