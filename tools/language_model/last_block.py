"""The last block, the last norm and ten head rows of a Llama model as functions of their parameters, over frozen states.

Everything below the last block is computed once. Only a prompt's last token needs an output. So the queries, the two projections
behind attention and the head see one token per prompt; keys and values see all. Prompts of one category begin alike: the states
of that beginning are the same, and its keys and values are computed once a category.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import silu

HEADS, KEYS, WIDTH = 9, 3, 64
"""SmolLM2-135M: query heads, key heads, and numbers of a head."""
BASE, EPSILON = 1e5, 1e-5
MATRICES = ("query", "key", "value", "out", "gate", "up", "down", "head")
SHARED = ", shared"
NORMS = ("norm", "second norm", "last norm")


@dataclass(frozen=True)
class Prompts:
    """Frozen states in front of the last block.

    Attributes
    ----------
    shared : Tensor, shape (C, S, 576)
        Over their root mean square, of the beginning that the prompts of a category share, padded behind.
    shared_lengths : Tensor of int, shape (C,)
    own : Tensor, shape (M, T, 576)
        Over their root mean square, of the tokens that follow, padded in front, so that the last is the prompt's last.
    own_lengths : Tensor of int, shape (M,)
    last : Tensor, shape (M, 576)
        The last token's state as it is.
    category : Tensor of int, shape (M,)
    answers : Tensor of int, shape (M,)
    """

    shared: torch.Tensor
    shared_lengths: torch.Tensor
    own: torch.Tensor
    own_lengths: torch.Tensor
    last: torch.Tensor
    category: torch.Tensor
    answers: torch.Tensor

    def take(self, rows):
        """Return some of the prompts, and of the beginnings those that they have."""
        kinds, category = self.category[rows].unique(return_inverse=True)
        return Prompts(
            self.shared[kinds],
            self.shared_lengths[kinds],
            self.own[rows],
            self.own_lengths[rows],
            self.last[rows],
            category,
            self.answers[rows],
        )


def read_parameters(model, tokens):
    """Return the trained parameters by name, with the head's rows of these tokens."""
    block = model.model.layers[-1]
    found = {
        "query": block.self_attn.q_proj.weight,
        "key": block.self_attn.k_proj.weight,
        "value": block.self_attn.v_proj.weight,
        "out": block.self_attn.o_proj.weight,
        "gate": block.mlp.gate_proj.weight,
        "up": block.mlp.up_proj.weight,
        "down": block.mlp.down_proj.weight,
        "head": model.get_output_embeddings().weight[tokens],
        "norm": block.input_layernorm.weight,
        "second norm": block.post_attention_layernorm.weight,
        "last norm": model.model.norm.weight,
    }
    return {name: value.detach().clone() for name, value in found.items()}


def unit(states):
    """Return states over their root mean square."""
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + EPSILON)


def turn(heads, positions):
    """Rotate heads (..., n, WIDTH) by their positions (...)."""
    speeds = BASE ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = (positions[..., None] * speeds)[..., None, :]
    first, second = heads[..., : WIDTH // 2], heads[..., WIDTH // 2 :]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def forward(parameters, prompts):
    """Return the logits (M, 10), and of every matrix its input and its output, whose gradients are wanted apart by prompt.

    The inputs and outputs of keys and values are of the beginnings, (C, S, .), and of what follows, (M, T, .).
    """
    seen = {}

    def apply(name, states, part=""):
        product = states @ parameters[name].T
        seen[name + part] = (states, product)
        return product

    def scale(name, normal, part=""):
        product = normal * parameters[name]
        seen[name + part] = (normal, product)
        return product

    count, longest = prompts.own.shape[:2]
    begun = prompts.shared_lengths[prompts.category]
    here = begun[:, None] + torch.arange(longest) - (longest - prompts.own_lengths)[:, None]
    there = torch.arange(prompts.shared.shape[1]).expand(len(prompts.shared), -1)
    own, shared = scale("norm", prompts.own), scale("norm", prompts.shared, SHARED)
    query = turn(apply("query", own[:, -1]).view(count, HEADS, WIDTH), here[:, -1])
    keys = torch.cat(
        [
            turn(apply("key", shared, SHARED).unflatten(-1, (KEYS, WIDTH)), there)[prompts.category],
            turn(apply("key", own).unflatten(-1, (KEYS, WIDTH)), here),
        ],
        1,
    )
    values = torch.cat(
        [
            apply("value", shared, SHARED).unflatten(-1, (KEYS, WIDTH))[prompts.category],
            apply("value", own).unflatten(-1, (KEYS, WIDTH)),
        ],
        1,
    )
    allowed = torch.cat([there[prompts.category] < begun[:, None], here >= begun[:, None]], 1)
    query = query.view(count, KEYS, HEADS // KEYS, WIDTH)
    weights = torch.einsum("mkhw,mtkw->mkht", query, keys) / WIDTH**0.5
    weights = weights.masked_fill(~allowed[:, None, None], float("-inf")).softmax(-1)
    mixed = torch.einsum("mkht,mtkw->mkhw", weights, values).reshape(count, -1)
    middle = prompts.last + apply("out", mixed)
    normal = scale("second norm", unit(middle))
    end = middle + apply("down", silu(apply("gate", normal)) * apply("up", normal))
    return apply("head", scale("last norm", unit(end))), seen
