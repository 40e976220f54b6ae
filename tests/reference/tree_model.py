"""A causal model in torch whose logits are a token tree's: one row of logits for each prompt and prefix.

It runs in the trainers' environments and knows nothing of the package.
"""

from types import SimpleNamespace

import torch


class TreeModel(torch.nn.Module):
    """The logits (M, prefixes, V) are its parameter; token V + m opens prompt m."""

    def __init__(self, logits, prefixes):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))
        self.places = {tuple(prefix): place for place, prefix in enumerate(prefixes)}

    @property
    def vocabulary_size(self):
        return self.logits.shape[2]

    def next_logits(self, prompt, tokens):
        """Return the logits (T, V) of each of a response's tokens; beyond its end the first prefix stands in, to be masked."""
        rows = [self.places.get(tuple(tokens[:t]), 0) for t in range(len(tokens))]
        return self.logits[prompt, rows]

    def log_probabilities(self, prompts, responses):
        """Return the log probabilities (N, T) of the tokens of padded responses."""
        logs = torch.stack([self.next_logits(m, tokens) for m, tokens in zip(prompts, responses, strict=True)]).log_softmax(-1)
        return logs.gather(2, torch.tensor(responses)[..., None])[..., 0]

    def forward(self, input_ids, attention_mask=None, labels=None, fused_lm_head=True):
        """As TRL calls a causal model: log probabilities and entropies of all tokens but the first, shape (N, T)."""
        prompts = (input_ids[:, 0] - self.vocabulary_size).tolist()
        log_probs = self.log_probabilities(prompts, input_ids[:, 1:].tolist())
        return SimpleNamespace(log_probs=log_probs, entropy=torch.zeros_like(log_probs))


def padded(responses):
    """Return responses padded with token 0 (N, T), and the mask (N, T)."""
    longest = max(map(len, responses))
    rows = [list(tokens) + [0] * (longest - len(tokens)) for tokens in responses]
    mask = [[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens in responses]
    return rows, torch.tensor(mask)
