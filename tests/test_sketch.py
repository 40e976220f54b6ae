"""Sketches of a tiny language model's gradients against the gradients themselves (marker `reference`: needs torch)."""

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.language_model import CountSketch

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PROMPTS = [[5, 6, 7], [5, 6, 7], [9, 2], [5, 6, 7], [11, 3, 2, 8]]
RESPONSES = [[1, 2, 3], [4], [1, 2, 3], [1, 2, 3], [30, 0]]


def tiny(tied=True, seed=0):
    """Return a random model of 2 layers with a vocabulary of 32."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings = transformers.LlamaConfig(vocab_size=32, tie_word_embeddings=tied, initializer_range=0.3, **shape)
    return transformers.LlamaForCausalLM(settings).eval()


def likelihood(model, prompt, response, temperature=1.0):
    """Return log pi of the response, token by token, each from a pass of its own."""
    tokens, total = list(prompt), 0.0
    for token in response:
        logits = model(torch.tensor([tokens])).logits[0, -1] / temperature
        total = total + logits.log_softmax(-1)[token]
        tokens.append(token)
    return total


def gradients(model, temperature=1.0):
    """Return the exact gradients of all pairs, (N, n_parameters), by backward passes into .grad."""
    found = []
    for pair in zip(PROMPTS, RESPONSES, strict=True):
        model.zero_grad()
        likelihood(model, *pair, temperature).backward()
        found.append(np.concatenate([parameter.grad.numpy().ravel() for parameter in model.parameters()]))
    model.zero_grad()
    return np.array(found, dtype=np.float64)


def test_a_sketch_is_the_count_sketch_of_the_exact_gradient():
    """The same map applied to gradients found in another way, at a temperature; each parameter begins a chunk."""
    model = tiny()
    found = gt.sketch(model, PROMPTS, RESPONSES, width=256, seed=3, temperature=0.7, progress=False)
    sizes = np.cumsum([parameter.numel() for parameter in model.parameters()])[:-1]
    expected = [CountSketch(256, 4, 3)(np.split(gradient, sizes)) for gradient in gradients(model, 0.7)]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_a_tied_parameter_counts_once_with_both_of_its_uses():
    """The tied matrix's gradient is the sum of those of an embedding and a head that are equal and untied."""
    model, untied = tiny(), tiny(tied=False)
    untied.load_state_dict(model.state_dict() | {"lm_head.weight": model.get_input_embeddings().weight})
    tied = gt.sketch(model, PROMPTS, RESPONSES, parameters=[model.get_input_embeddings().weight] * 2, progress=False)
    parts = [
        gt.sketch(untied, PROMPTS, RESPONSES, parameters=[layer.weight], progress=False)
        for layer in (untied.get_input_embeddings(), untied.get_output_embeddings())
    ]
    np.testing.assert_allclose(tied, parts[0] + parts[1], rtol=1e-3, atol=1e-4 * np.abs(tied).max())


def test_frozen_parameters_are_left_out():
    """As for a LoRA: what requires no gradient has none."""
    model = tiny()
    last = model.model.layers[1].mlp.down_proj.weight
    for parameter in model.parameters():
        parameter.requires_grad_(parameter is last)
    found = gt.sketch(model, PROMPTS, RESPONSES, progress=False)
    np.testing.assert_array_equal(found, gt.sketch(model, PROMPTS, RESPONSES, parameters=[last], progress=False))


def test_work_goes_on_where_it_was(tmp_path):
    model, passes = tiny(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    fresh = gt.sketch(model, PROMPTS, RESPONSES, progress=False)
    assert len(passes) == 4, "two of the five pairs are the same"
    np.testing.assert_array_equal(gt.sketch(model, PROMPTS[:2], RESPONSES[:2], folder=tmp_path), fresh[:2])
    del passes[:]
    np.testing.assert_array_equal(gt.sketch(model, PROMPTS, RESPONSES, folder=tmp_path), fresh)
    assert len(passes) == 2
    sorted(tmp_path.iterdir())[0].unlink()
    for other, count in (({}, 1), ({"seed": 1}, 4), ({"temperature": 2.0}, 4), ({"blocks": 2}, 4)):
        del passes[:]
        found = gt.sketch(model, PROMPTS, RESPONSES, folder=tmp_path, **other)
        assert (len(passes), np.array_equal(found, fresh)) == (count, count == 1)


def test_sketches_of_another_frozen_weight_or_buffer_are_not_taken(tmp_path):
    """One weight is differentiated, and others change: each by what leaves its sum of squares as it is, a change of sign."""
    model = tiny()
    last = model.model.layers[1].mlp.down_proj.weight
    model.model.norm.register_buffer("scale", torch.ones(1))
    model.model.norm.register_forward_hook(lambda module, given, out: out * module.scale)

    def sketched(folder=tmp_path):
        return gt.sketch(model, PROMPTS, RESPONSES, folder=folder, parameters=[last], progress=False)

    before = [sketched()]
    for changed in (model.model.layers[0].mlp.up_proj.weight, model.get_input_embeddings().weight, model.model.norm.scale):
        with torch.no_grad():
            changed.view(-1)[0] *= -1.0
        found = sketched()
        np.testing.assert_array_equal(found, sketched(folder=None))
        assert not any(np.array_equal(found, other) for other in before)
        before.append(found)


@pytest.mark.parametrize("fails", [False, True])
def test_each_module_comes_back_into_its_mode_and_keeps_its_weights(fails):
    model = tiny().train()
    model.model.layers[0].eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    if fails:
        with torch.no_grad():
            model.model.norm.weight[0] = torch.nan
        with pytest.raises(ValueError, match="model must have finite gradients"):
            gt.sketch(model, PROMPTS, RESPONSES, progress=False)
    else:
        gt.sketch(model, PROMPTS, RESPONSES, progress=False)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert fails or all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
