"""A Llama model of which parts are trained, of many runs at once, and the prompts that it is asked.

Every run has trained arrays of its own and shares the rest. Trained are all arrays of the last block, the last norm and the head,
or low-rank adapters (LoRA) on all matrices of all blocks. With an adapter a matrix W acts as W + SCALE up down. At the
start down (RANK, in) is random and up (out, RANK) is 0. So all runs start at the model. Prompts of one category begin alike:
what passes through that beginning is computed once a category and run. The output is the logits of some tokens behind each
prompt, and behind each beginning of an answer to it.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention, silu

WIDTH, BASE, EPSILON = 64, 1e5, 1e-5
"""SmolLM2-135M: numbers of an attention head, and the constants of rotation and norm."""
MATRICES = ("query", "key", "value", "out", "gate", "up", "down")
RANK, SCALE = 8, 2.0
"""Of an adapter, and what its product is multiplied by (alpha 16)."""


@dataclass(frozen=True)
class Questions:
    """Prompts of C categories, P of each, for each of A runs or (A = 1) for all alike.

    Attributes
    ----------
    begun : Tensor of int, shape (A, C, S)
        Rows of the embedding, of the beginning that a category's prompts share, padded behind.
    begun_lengths : Tensor of int, shape (A, C)
    own : Tensor of int, shape (A, C, P, T)
        What follows, padded in front, and the last token of each beginning of an answer but the empty one.
    own_lengths : Tensor of int, shape (A, C, P)
    answers, numbers : ndarray of int, shape (C P,)
        Right answers, and rows of the set of questions.
    longer, within : Tensor of int, shape (N,), and of bool, shape (N, N)
        Of N beginnings of an answer, the first of which is empty: their lengths, and which of them each begins with.
    """

    begun: torch.Tensor
    begun_lengths: torch.Tensor
    own: torch.Tensor
    own_lengths: torch.Tensor
    answers: np.ndarray
    numbers: np.ndarray
    longer: torch.Tensor
    within: torch.Tensor

    def on(self, device):
        """Return the prompts on a device."""
        return Questions(*(value.to(device) if torch.is_tensor(value) else value for value in vars(self).values()))

    def apart(self):
        """Return every prompt as the only one of a run: A = C P, C = P = 1."""
        kinds = torch.arange(self.own.shape[1], device=self.own.device).repeat_interleave(self.own.shape[2])
        begun, begun_lengths = self.begun[0, kinds][:, None], self.begun_lengths[0, kinds][:, None]
        own, lengths = self.own[0].flatten(0, 1)[:, None, None], self.own_lengths[0].flatten()[:, None, None]
        return replace(self, begun=begun, begun_lengths=begun_lengths, own=own, own_lengths=lengths)


def lines(parents):
    """Return the lengths of beginnings of an answer, and which of them each begins with (N, N)."""
    within = np.eye(len(parents), dtype=bool)
    for child, parent in enumerate(parents):
        within[child] |= within[parent]  # a beginning stands behind the one that is shorter
    return torch.tensor(within.sum(axis=1) - 1), torch.tensor(within)


def pack(begun, rests, answers, numbers, parents=(0,)):
    """Return prompts of rows of the embedding: beginnings by category, and what follows by category and prompt.

    Of each beginning of an answer, `parents` has the number of the one that is a token shorter.
    """
    longest, each = max(map(len, begun)), max(len(rest) for some in rests for rest in some)
    first = torch.tensor([[rows + [0] * (longest - len(rows)) for rows in begun]])
    then = torch.tensor([[[[0] * (each - len(rest)) + rest for rest in some] for some in rests]])
    lengths = torch.tensor([[len(rows) for rows in begun]]), torch.tensor([[[len(rest) for rest in some] for some in rests]])
    own_lengths, asked = lengths[1] - len(parents) + 1, (np.array(answers), np.array(numbers))
    return Questions(first, lengths[0], then, own_lengths, *asked, *lines(parents))


def read_blocks(layers, model, embedding, digits):
    """Return the arrays of some blocks, (L, out, in) or (L, 1, 576), of the last norm, the digits' head, and an embedding."""
    at = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "o_proj"}
    found = {name: [getattr(layer.self_attn, where).weight for layer in layers] for name, where in at.items()}
    found |= {name: [getattr(layer.mlp, f"{name}_proj").weight for layer in layers] for name in MATRICES[4:]}
    found["norm"] = [layer.input_layernorm.weight[None] for layer in layers]
    found["second norm"] = [layer.post_attention_layernorm.weight[None] for layer in layers]
    found |= {"last norm": [model.model.norm.weight[None]], "head": [model.get_output_embeddings().weight[digits]]}
    return {name: torch.stack(values).detach() for name, values in found.items()} | {"embedding": embedding.detach()}


def fresh(blocks, adapters, seeds):
    """Return what is trained at its start, with one run for each seed along the second axis: adapters, or all given arrays."""
    if not adapters:
        copies = {name: value[:, None].repeat(1, len(seeds), 1, 1) for name, value in blocks.items() if name != "embedding"}
        return {name: value.requires_grad_(True) for name, value in copies.items()}
    found = {}
    for place, name in enumerate(MATRICES):
        layers, out, into = blocks[name].shape
        down = torch.empty(layers, len(seeds), RANK, into)
        for run, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(1000 * seed + place)
            down[:, run] = (2.0 * torch.rand(layers, RANK, into, generator=generator) - 1.0) / into**0.5
        found[f"{name}, down"] = down.to(blocks[name].device).requires_grad_(True)
        found[f"{name}, up"] = torch.zeros(layers, len(seeds), out, RANK, device=blocks[name].device).requires_grad_(True)
    return found


def turn(heads, positions):
    """Rotate heads (..., n, heads, WIDTH) by their positions (..., n)."""
    speeds = BASE ** (-torch.arange(0, WIDTH, 2, device=heads.device) / WIDTH)
    angles = (positions[..., None] * speeds)[..., None, :]
    first, second = heads[..., : WIDTH // 2], heads[..., WIDTH // 2 :]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def allowed(asked, there, here):
    """Return what tokens that follow may attend to, (A, C, P, T, S + T): their beginning, and their prompt up to themselves.

    Tokens of an answer attend to those of it that are in front of them.
    """
    begun, questions = there < asked.begun_lengths[..., None], here.shape[-1] - len(asked.within) + 1
    real = here >= asked.begun_lengths[..., None, None]
    own = (here[..., None] >= here[..., None, :]) & real[..., None, :]
    own[..., questions:] = False
    own[..., questions - 1 :, questions:] |= asked.within[:, 1:]
    own = own | torch.eye(own.shape[-1], dtype=torch.bool, device=own.device)
    return torch.cat([begun[:, :, None, None].expand(*own.shape[:-1], -1), own], -1)


def forward(blocks, trained, asked):
    """Return the logits (A, C, P, N, 10) and the last hidden states (A, C, P, N, 576)."""
    runs, layers, read = next(iter(trained.values())).shape[1], len(blocks["query"]), len(asked.longer)
    there, each = torch.arange(asked.begun.shape[2], device=asked.begun.device), asked.own.shape[3] - read + 1
    here = asked.begun_lengths[..., None, None] + torch.arange(each, device=there.device) - (each - asked.own_lengths)[..., None]
    here = torch.cat([here, here[..., -1:] + asked.longer[1:]], -1)
    mask = allowed(asked, there, here)[:, :, :, None]

    def array(name, layer):
        return (trained if name in trained else blocks)[name][layer]

    def apply(name, inputs, layer):
        flat = inputs.flatten(1, -2)
        product = flat @ array(name, layer).mT
        if f"{name}, up" in trained:
            product = product + SCALE * (flat @ trained[f"{name}, down"][layer].mT @ trained[f"{name}, up"][layer].mT)
        return product.unflatten(1, inputs.shape[1:-1])

    def norm(name, states, layer):
        unit = states * torch.rsqrt(states.square().mean(-1, keepdim=True) + EPSILON)
        gains = array(name, layer)
        return unit * gains.reshape(-1, *(1,) * (states.dim() - 2), gains.shape[-1])

    def heads(name, inputs, layer, positions=None):
        found = apply(name, inputs, layer).unflatten(-1, (-1, WIDTH))
        return (found if positions is None else turn(found, positions)).transpose(-3, -2)

    def behind(states, mixed, layer):
        """Return a block's output, given its input and what its attention gives for each head."""
        states = states + apply("out", mixed.transpose(-3, -2).flatten(-2), layer)
        normal = norm("second norm", states, layer)
        return states + apply("down", silu(apply("gate", normal, layer)) * apply("up", normal, layer), layer)

    begun, own = (blocks["embedding"][tokens].expand(runs, *tokens.shape[1:], -1) for tokens in (asked.begun, asked.own))
    for layer in range(layers):
        first, then = norm("norm", begun, layer), norm("norm", own, layer)
        known = [heads("key", first, layer, there), heads("value", first, layer)]
        added = [heads("key", then, layer, here), heads("value", then, layer)]
        # Of what a category shares, prompts read keys and values; of the last block only what next tokens stand behind is read.
        both = [torch.cat([x[:, :, None].expand(*y.shape[:4], -1, -1), y], -2) for x, y in zip(known, added, strict=True)]
        if layer == layers - 1:
            own, then, here, mask = own[..., -read:, :], then[..., -read:, :], here[..., -read:], mask[..., -read:, :]
        else:
            query = heads("query", first, layer, there)
            begun = behind(begun, scaled_dot_product_attention(query, *known, is_causal=True, enable_gqa=True), layer)
        query = heads("query", then, layer, here)
        own = behind(own, scaled_dot_product_attention(query, *both, attn_mask=mask, enable_gqa=True), layer)
    ends = norm("last norm", own, 0)
    return apply("head", ends, 0), ends
