"""Inner products of the scores of all prompts and answers, in the parameters of the last block and the head, exactly.

The gradient of a logit in a matrix is the sum over tokens of its gradient in the matrix's output times the matrix's input.  Where
one token alone passes, inner products of two gradients are products of inner products of these; else gradients are written out.
"""

from dataclasses import replace

import numpy as np
import torch
from last_block import MATRICES, SHARED, forward

LOGITS = 10


def apart(prompts):
    """Return the prompts, each with a beginning of its own, so that what passes through it is known by prompt."""
    kinds = prompts.category
    own = torch.arange(len(kinds))
    return replace(prompts, shared=prompts.shared[kinds], shared_lengths=prompts.shared_lengths[kinds], category=own)


def products(parameters, prompts):
    """Return by array the inner products of the logits' gradients, (M, 10, M, 10), and probabilities (M, 10)."""
    for value in parameters.values():
        value.requires_grad_(True)
    logits, seen = forward(parameters, apart(prompts))
    outputs = [output for _, output in seen.values()]
    rows = [torch.autograd.grad(logits[:, a].sum(), outputs, retain_graph=a + 1 < LOGITS) for a in range(LOGITS)]
    found = {}
    for name in parameters:
        parts = [place for place, key in enumerate(seen) if key.removesuffix(SHARED) == name]
        inputs = [list(seen.values())[place][0].detach() for place in parts]
        slopes = [torch.stack([row[place] for row in rows], 1) for place in parts]
        if name in MATRICES and inputs[0].dim() == 2:
            inner = (inputs[0] @ inputs[0].T).double()
            flat = slopes[0].flatten(0, 1)
            found[name] = (flat @ flat.T).double().unflatten(1, (-1, LOGITS)).unflatten(0, (-1, LOGITS)) * inner[:, None, :, None]
        else:
            flat = sum(_written(name, x, slope) for x, slope in zip(inputs, slopes, strict=True))
            found[name] = (flat @ flat.T).double().unflatten(1, (-1, LOGITS)).unflatten(0, (-1, LOGITS))
    return {name: each.numpy() for name, each in found.items()}, logits.detach().double().softmax(-1).numpy()


def _written(name, inputs, slopes):
    """Return gradients of logits, (10 M, size): inputs (M, ..., in) and slopes (M, 10, ..., out)."""
    if name in MATRICES:
        return torch.einsum("mato,mti->maoi", slopes, inputs).flatten(2).flatten(0, 1)
    return (
        (slopes * inputs[:, None]).flatten(2, -2).sum(2).flatten(0, 1)
        if inputs.dim() > 2
        else (slopes * inputs[:, None]).flatten(0, 1)
    )


def success_covectors(probabilities, answers):
    """Return the gradients of success in the logits, (M, 10)."""
    value = probabilities[np.arange(len(answers)), answers]
    return value[:, None] * (np.eye(LOGITS)[answers] - probabilities)


def score_moments(inner, probabilities, answers):
    """Return inner products of the prompts' gradients of success (M, M), and E ||score||^2 given a wrong and a right answer.

    `inner` are the logits' inner products (M, 10, M, 10).
    """
    covectors = success_covectors(probabilities, answers)
    gram = np.einsum("ma,manb,nb->mn", covectors, inner, covectors)
    scores = np.eye(LOGITS) - probabilities[:, None]
    powers = np.einsum("mka,mamb,mkb->mk", scores, inner, scores)
    right = np.eye(LOGITS)[answers].astype(bool)
    wrong = np.where(right, 0.0, probabilities)
    return gram, np.stack([(wrong * powers).sum(axis=1) / wrong.sum(axis=1), powers[right]], axis=1)
