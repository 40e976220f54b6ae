"""Low-rank adapters (LoRA) on all matrices of all blocks of a Llama model, of many runs at once.

Every run has adapters of its own and shares the model's weights. A matrix W acts as W + SCALE up down, where down (RANK, in) is
random at the start and up (out, RANK) is 0. So all runs start at the model. Prompts of one category begin alike: what passes
through that beginning is computed once a category and run. The output is the logits of ten tokens behind each prompt.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

HEADS, KEYS, WIDTH = 9, 3, 64
"""SmolLM2-135M: query heads, key heads, and numbers of a head."""
BASE, EPSILON = 1e5, 1e-5
MATRICES = ("query", "key", "value", "out", "gate", "up", "down")
RANK, SCALE = 8, 2.0
"""Of an adapter, and what its product is multiplied by (alpha 16)."""


@dataclass(frozen=True)
class Blocks:
    """A model, frozen.

    Attributes
    ----------
    matrices : dict of str to Tensor, shape (L, out, in)
        Each of the L blocks' seven matrices.
    norms : dict of str to Tensor, shape (L, 576)
        The gains in front of a block's attention ("norm") and of its network ("second norm").
    last : Tensor, shape (576,)
        The gains behind the last block.
    embedding : Tensor, shape (V, 576)
        Rows of the tokens that occur.
    head : Tensor, shape (10, 576)
        Rows of the ten digits.
    """

    matrices: dict[str, torch.Tensor]
    norms: dict[str, torch.Tensor]
    last: torch.Tensor
    embedding: torch.Tensor
    head: torch.Tensor

    def on(self, device):
        """Return the model on a device."""
        matrices, norms = ({name: value.to(device) for name, value in some.items()} for some in (self.matrices, self.norms))
        return Blocks(matrices, norms, self.last.to(device), self.embedding.to(device), self.head.to(device))


@dataclass(frozen=True)
class Asked:
    """Prompts of C categories, P of each, as tokens, for each of A runs or (A = 1) for all alike.

    Attributes
    ----------
    begun : Tensor of int, shape (A, C, S)
        The beginning that a category's prompts share, padded behind.
    begun_lengths : Tensor of int, shape (A, C)
    own : Tensor of int, shape (A, C, P, T)
        What follows, padded in front, so that the last is the prompt's last.
    own_lengths : Tensor of int, shape (A, C, P)
    """

    begun: torch.Tensor
    begun_lengths: torch.Tensor
    own: torch.Tensor
    own_lengths: torch.Tensor

    def on(self, device):
        """Return the prompts on a device."""
        return Asked(*(value.to(device) for value in vars(self).values()))

    def apart(self):
        """Return every prompt as the only one of a run: (C P, 1, 1)."""
        categories, each = self.own.shape[1:3]
        kinds = torch.arange(categories, device=self.own.device).repeat_interleave(each)
        own, lengths = self.own[0].flatten(0, 1)[:, None, None], self.own_lengths[0].flatten()[:, None, None]
        return Asked(self.begun[0, kinds][:, None], self.begun_lengths[0, kinds][:, None], own, lengths)


def fresh(blocks, seeds):
    """Return adapters at the start, of one run for each seed: down (L, A, RANK, in) and up (L, A, out, RANK) by matrix."""
    found = {}
    for place, name in enumerate(MATRICES):
        layers, out, into = blocks.matrices[name].shape
        down = torch.empty(layers, len(seeds), RANK, into)
        for run, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(1000 * seed + place)
            down[:, run] = (2.0 * torch.rand(layers, RANK, into, generator=generator) - 1.0) / into**0.5
        device = blocks.last.device
        found[f"{name}, down"] = down.to(device).requires_grad_(True)
        found[f"{name}, up"] = torch.zeros(layers, len(seeds), out, RANK, device=device).requires_grad_(True)
    return found


def unit(states):
    """Return states over their root mean square."""
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + EPSILON)


def turn(heads, angles):
    """Rotate heads (A, N, n, WIDTH) by angles (A, N, 1, WIDTH / 2)."""
    first, second = heads[..., : WIDTH // 2], heads[..., WIDTH // 2 :]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def positions(asked):
    """Return the positions of all tokens, (A, N), those of beginnings before those of what follows."""
    runs, categories, longest = asked.begun.shape
    each = asked.own.shape[3]
    there = torch.arange(longest, device=asked.begun.device).expand(runs, categories, longest)
    here = torch.arange(each, device=asked.begun.device) - (each - asked.own_lengths)[..., None]
    here = here + asked.begun_lengths[..., None, None]
    return torch.cat([there.flatten(1), here.flatten(1)], 1)


def allowed(asked):
    """Return what tokens that follow may attend to, (A, C, P, T, S + T): their beginning, and their prompt up to themselves."""
    longest, each = asked.begun.shape[2], asked.own.shape[3]
    device = asked.begun.device
    begun = torch.arange(longest, device=device) < asked.begun_lengths[..., None]
    place = torch.arange(each, device=device)
    real = place >= (each - asked.own_lengths)[..., None]
    own = (place[:, None] >= place) & real[..., None, :]
    own = own | torch.eye(each, dtype=torch.bool, device=device)
    return torch.cat([begun[:, :, None, None].expand(*own.shape[:-1], -1), own], -1)


def forward(blocks, adapters, asked):
    """Return the logits (A, C, P, 10) and the last hidden states (A, C, P, 576)."""
    runs = adapters["query, up"].shape[1]
    angles = positions(asked)[..., None] * BASE ** (-torch.arange(0, WIDTH, 2, device=asked.own.device) / WIDTH)
    angles, mask = angles[:, :, None], allowed(asked)
    tokens = torch.cat([asked.begun.flatten(1), asked.own.flatten(1)], 1)
    states = blocks.embedding[tokens].expand(runs, -1, -1)
    for layer in range(len(blocks.norms["norm"])):

        def apply(name, inputs, layer=layer):
            low = inputs @ adapters[f"{name}, down"][layer].mT
            return inputs @ blocks.matrices[name][layer].T + SCALE * (low @ adapters[f"{name}, up"][layer].mT)

        normal = unit(states) * blocks.norms["norm"][layer]
        query = turn(apply("query", normal).unflatten(-1, (HEADS, WIDTH)), angles)
        key = turn(apply("key", normal).unflatten(-1, (KEYS, WIDTH)), angles)
        value = apply("value", normal).unflatten(-1, (KEYS, WIDTH))
        states = states + apply("out", attend(query, key, value, asked, mask))
        normal = unit(states) * blocks.norms["second norm"][layer]
        states = states + apply("down", silu(apply("gate", normal)) * apply("up", normal))
    categories, each, longest = asked.own.shape[1:]
    ends = states[:, -categories * each * longest :].unflatten(1, (categories, each, longest))[..., -1, :]
    ends = unit(ends) * blocks.last
    return ends @ blocks.head.T, ends


def attend(query, key, value, asked, mask):
    """Return what all tokens attend to, (A, N, 576), given queries (A, N, HEADS, WIDTH), and keys and values of KEYS heads."""
    categories, longest = asked.begun.shape[1:]
    shape, split = asked.own.shape[1:], categories * longest
    runs = query.shape[0]

    def beginnings(heads):
        return heads[:, :split].unflatten(1, (categories, longest)).flatten(0, 1).transpose(1, 2)

    first = scaled_dot_product_attention(*map(beginnings, (query, key, value)), is_causal=True, enable_gqa=True)
    first = first.transpose(1, 2).reshape(runs, split, HEADS * WIDTH)
    begun_key, begun_value = (heads[:, :split].unflatten(1, (categories, longest)) for heads in (key, value))
    own_key, own_value = (heads[:, split:].unflatten(1, shape) for heads in (key, value))
    own = query[:, split:].unflatten(1, shape).unflatten(-2, (KEYS, HEADS // KEYS)) / WIDTH**0.5
    weights = torch.cat(
        [
            torch.einsum("acptkgw,acskw->acpkgts", own, begun_key),
            torch.einsum("acptkgw,acpukw->acpkgtu", own, own_key),
        ],
        -1,
    )
    weights = weights.masked_fill(~mask[:, :, :, None, None], float("-inf")).softmax(-1)
    mixed = torch.einsum("acpkgts,acskw->acptkgw", weights[..., :longest], begun_value)
    mixed = mixed + torch.einsum("acpkgtu,acpukw->acptkgw", weights[..., longest:], own_value)
    return torch.cat([first, mixed.flatten(-3).flatten(1, 3)], 1)
