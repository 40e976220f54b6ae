"""A language model of two random layers, with the shape of the blocks of the one whose answers are shipped."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def small_llama(spread):
    """Return the model, with 32 tokens and weights of a standard deviation."""
    torch.manual_seed(0)
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 9}
    rope = {"rope_type": "default", "rope_theta": 1e5}
    settings = transformers.LlamaConfig(
        vocab_size=32, num_key_value_heads=3, rms_norm_eps=1e-5, rope_parameters=rope, initializer_range=spread, **shape
    )
    return transformers.LlamaForCausalLM(settings).eval()
