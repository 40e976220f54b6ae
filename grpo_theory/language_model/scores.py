"""Sketches of the scores of a language model's responses: gradients of log pi with respect to all its parameters.

Long vectors are made short so that inner products stay right on average (docs/derivations.md, section 36).
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.jit import kernel
from grpo_theory.simulate.draws import with_progress
from grpo_theory.validation import Array, as_array, as_count, as_positive, shown

if TYPE_CHECKING:
    from torch import Tensor


SIGNS = 32
"""So many coordinates have their signs from one word: the bits of its upper half, which are the better mixed."""
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def splitmix(key, number):
    """Return one output of SplitMix64 (Steele, Lea and Flood 2014): that of this number, from 0, after the seed `key`."""
    word = key + (number + np.uint64(1)) * GOLDEN
    word = (word ^ (word >> np.uint64(30))) * FIRST
    word = (word ^ (word >> np.uint64(27))) * SECOND
    return word ^ (word >> np.uint64(31))


@kernel
def add_signed(vector, first, keys, sums):
    """Add a vector's chunks, with random signs and each shifted by a random offset, to sums (blocks, 2 m) that do not wrap round.

    A chunk of m coordinates uses m/32 + 1 words of each block's stream. Its offset comes from the first word, and its signs are
    the bits of the others. `first` is the number of the first chunk.
    """
    size, width = vector.size, sums.shape[1] // 2
    words = width // SIGNS
    for chunk in range((size + width - 1) // width):
        number = (first + np.uint64(chunk)) * np.uint64(words + 1)
        for block in range(keys.size):
            shift = np.int64(splitmix(keys[block], number) % np.uint64(width))
            for j in range(words):
                bits = np.int64(splitmix(keys[block], number + np.uint64(j + 1)) >> np.uint64(32))
                start, offset = chunk * width + j * SIGNS, shift + j * SIGNS
                part, out = vector[start : start + SIGNS], sums[block, offset : offset + SIGNS]
                # Sums have twice the width, so that no index has to be wrapped; the halves are added up in the end.
                for i in range(part.size):
                    out[i] += np.float32(1 - 2 * ((bits >> i) & 1)) * part[i]


class CountSketch:
    """A random linear map to `width` numbers under which inner products keep their value on average.

    A vector is cut into chunks of m = width/blocks coordinates. In each of the blocks, independently, every coordinate gets a
    random sign and every chunk is rotated by a random offset. The chunks are then added up. This is a count sketch (Charikar,
    Chen and Farach-Colton 2002) whose buckets differ within a chunk. The inner product of the sketches of x and y is unbiased for
    x . y. Its variance is at most (||x||^2 ||y||^2 + (x . y)^2)/width.

    Parameters
    ----------
    width : int
        A multiple of 32 blocks.
    blocks : int
        Each block by itself, times the square root of their number, is such a sketch; their spread measures the error.
    seed : int

    Examples
    --------
    >>> from grpo_theory.language_model import CountSketch
    >>> sketch = CountSketch(width=1024, blocks=4, seed=7)
    >>> sketch.width, sketch.blocks
    (1024, 4)
    """

    def __init__(self, width: int = 1024, blocks: int = 8, seed: int = 0) -> None:
        self.blocks = as_count("blocks", blocks)
        self.width = as_count("width", width)
        if self.width % (SIGNS * self.blocks):
            raise ValueError(f"width must be a multiple of {SIGNS} numbers for each of the {self.blocks} blocks, got {width}")
        self.seed = as_count("seed", seed, 0)
        self.keys = np.random.SeedSequence(self.seed).generate_state(self.blocks, np.uint64)

    def __call__(self, pieces: Iterable[ArrayLike]) -> Array:
        """Return the sketch (width,) of one vector that comes in pieces, in single precision; each begins a chunk of its own."""
        if not isinstance(pieces, Iterable) or (isinstance(pieces, np.ndarray) and pieces.ndim == 0):
            raise TypeError(f"pieces must be arrays of real numbers, got {shown(pieces)}")
        m, chunk = self.width // self.blocks, 0
        sums = np.zeros((self.blocks, 2 * m))
        for piece in pieces:
            try:
                if np.iscomplexobj(piece) or getattr(piece, "dtype", np.dtype(float)).kind in "mM":
                    raise TypeError("complex numbers, dates and times")
                with np.errstate(over="ignore"):  # what is too large for single precision becomes infinite
                    vector = np.ascontiguousarray(as_array("pieces", piece), dtype=np.float32).reshape(-1)
            except (TypeError, ValueError) as error:
                raise TypeError(f"pieces must be arrays of real numbers, got {shown(piece)}: {error}") from None
            add_signed(vector, np.uint64(chunk), self.keys, sums)
            chunk += -(-vector.size // m)
        if not np.isfinite(sums).all():
            raise ValueError("pieces must be finite in single precision, and are not")
        return ((sums[:, :m] + sums[:, m:]) / np.sqrt(self.blocks)).reshape(-1)


def sketch(
    model: Any,
    prompts: Sequence[Text],
    responses: Sequence[Text],
    *,
    tokenizer: Any = None,
    width: int = 1024,
    blocks: int = 4,
    seed: int = 0,
    temperature: float = 1.0,
    parameters: Sequence[Any] | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
) -> Array:
    """Sketch the gradient of log pi(response | prompt) of each response with respect to all trained parameters.

    One gradient is in memory at a time. It is the sum over the response's tokens, including the end token if it is part of the
    response. A `CountSketch` makes it short. Inner products of sketches are unbiased for those of the gradients, with variance at
    most (||W||^2 ||W'||^2 + (W . W')^2)/width. So are c1, c2 and c3, which are linear in inner products. A response
    that came more than once to the same prompt is computed once.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model on any device. It is put into evaluation mode, in which dropout is off, and each
        of its modules back.
    prompts, responses : sequences of N texts or of N sequences of token numbers
        One entry per response. Give token numbers as they were sampled where you have them: a text can be cut into tokens in
        another way than it was sampled. Texts are cut each by itself and without special tokens. A response that was ended by the
        end token must have that token at its end. Otherwise the choice to stop is not part of the score.
    tokenizer : transformers tokenizer, optional
        Needed for texts.
    width, blocks, seed : int
        Of the `CountSketch`. Sketches of two calls can be compared if all three, the model and the parameters are the same.
    temperature : float, default 1
        At which the responses were sampled: the score is that of softmax(logits/temperature). Sampling that cuts off
        the tail (top-k, top-p) follows another law, and has no score here.
    parameters : sequence of torch.nn.Parameter, optional
        With respect to which; all of the model's that require a gradient, unless given. One that is used in two places, as
        an embedding that is the head too, counts once.
    folder : path, optional
        Where finished sketches are kept, one small file per distinct pair. A run that was killed goes on where it was.
        Those of a model with another weight, frozen ones and buffers among them, are not taken.
    progress : bool, default True
        Show a bar on a terminal if it takes longer than some seconds.

    Returns
    -------
    ndarray, shape (N, width)
        The scores for `gt.Rollouts` or `gt.RaggedRollouts`.

    Raises
    ------
    ImportError
        If torch is not installed: pip install 'grpo-theory[lm]'.
    ValueError
        If lengths differ, a prompt or a response is empty, or a text comes without a tokenizer. If a token is not in the
        vocabulary, or a gradient is not finite.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> sketches = gt.sketch(model, prompts, responses, tokenizer=tokenizer)  # doctest: +SKIP
    >>> rollouts = gt.RaggedRollouts(prompts, rewards, sketches)  # doctest: +SKIP
    >>> print(gt.page.to_text(gt.plan.advise(rollouts, 1024)))  # doctest: +SKIP
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a causal language model of transformers, got {shown(model)}")
    if not isinstance(folder, str | Path | None) or folder == "":
        raise TypeError(f"folder must be a path, got {shown(folder)}")
    temperature = as_positive("temperature", temperature)
    projection = CountSketch(width, blocks, seed)
    pairs = token_pairs(prompts, responses, tokenizer, model.get_input_embeddings().weight.shape[0])
    wanted = trained_parameters(model, parameters)
    kept = Kept(folder, (width, blocks, seed, temperature, "" if folder is None else fingerprint(model, wanted)), width)
    sketches: dict[Pair, Array] = {}
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        # Different pairs only: short answers come many times, and a gradient is what takes time.
        different = dict.fromkeys(pairs)
        for pair in with_progress(different, len(different), "gradients" if progress else ""):
            found = kept.take(pair)
            if found is None:
                with torch.enable_grad():
                    likelihood = log_likelihood(model, *pair, temperature)
                    gradients = torch.autograd.grad(likelihood, wanted, materialize_grads=True)
                if not all(gradient.isfinite().all() for gradient in gradients):
                    raise ValueError(f"model must have finite gradients, and has one that is not at temperature {temperature:g}")
                found = projection(gradient.detach().float().cpu().numpy() for gradient in gradients)
                kept.put(pair, found)
            sketches[pair] = found
    finally:
        for module in training:
            module.training = True
    return np.stack([sketches[pair] for pair in pairs])


class Kept:
    """Finished arrays (width,) in a folder, so that long work can be interrupted; without a folder none are.

    An array is known by its key and by `settings`, all else that it depends on: the `repr` of both is what counts.
    """

    def __init__(self, folder: str | Path | None, settings: Any, width: int) -> None:
        self.folder, self.settings, self.width = None if folder is None else Path(folder), repr(settings), width
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: Any) -> Path:
        """Return where the array of a key is."""
        return Path(self.folder or "", f"{hashlib.sha256(f'{self.settings} {key!r}'.encode()).hexdigest()[:32]}.npy")

    def take(self, key: Any) -> Array | None:
        """Return the array of a key, or None if there is none, or a damaged one."""
        try:
            array = np.load(self.path(key), allow_pickle=False) if self.folder else np.empty(0)
        except (FileNotFoundError, ValueError, EOFError):
            return None
        return array if array.shape == (self.width,) and np.isfinite(array).all() else None

    def put(self, key: Any, array: Array) -> None:
        """Keep the array of a key: the file is there whole or not at all."""
        if self.folder is not None:
            draft = self.path(key).with_suffix(f".{os.getpid()}.tmp")
            with draft.open("wb") as file:
                np.save(file, array)
            draft.replace(self.path(key))


def trained_parameters(model: Any, parameters: Sequence[Any] | None) -> list[Any]:
    """Return the parameters to differentiate by, each once."""
    own = list(model.parameters())
    given = own if parameters is None else parameters
    if not isinstance(given, Sequence) or not {id(one) for one in given} <= {id(one) for one in own}:
        raise TypeError(f"parameters must be a list of the model's own, got {shown(parameters)}")
    wanted = list({id(parameter): parameter for parameter in given if parameter.requires_grad}.values())
    if not wanted:
        raise ValueError("parameters must hold at least one that requires a gradient")
    return wanted


def fingerprint(model: Any, wanted: Sequence[Any]) -> str:
    """Return a checksum of what gradients depend on: all weights and buffers, and which are differentiated, in which order."""
    import torch

    digest = hashlib.sha256()
    order = {id(parameter): number for number, parameter in enumerate(wanted)}
    named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    for name, tensor in named:
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape), order.get(id(tensor)))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def log_likelihood(model: Any, prompt: Tokens, response: Tokens, temperature: float) -> Tensor:
    """Return log pi(response | prompt), the sum over the response's tokens, as a scalar that can be differentiated."""
    import torch

    tokens = torch.tensor([prompt + response], device=model.device)
    kept = {"logits_to_keep": len(response) + 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    logits = model(tokens, use_cache=False, **kept).logits[0, -len(response) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, tokens[0, -len(response) :, None]).sum()


Text = str | Sequence[int]
"""A text, or its tokens' numbers."""
Tokens = tuple[int, ...]
Pair = tuple[Tokens, Tokens]
"""A prompt and a response to it."""


def token_pairs(prompts: Sequence[Text], responses: Sequence[Text], tokenizer: Any, vocabulary: int) -> list[Pair]:
    """Return each prompt with its response; a text is cut once however often it comes.

    Raises
    ------
    TypeError, ValueError
        If there are not as many, or one is neither a text nor at least one number of a token below `vocabulary`.
    """
    if tokenizer is not None and not callable(tokenizer):
        raise TypeError(f"tokenizer must be one of transformers' tokenizers, got {shown(tokenizer)}")
    cut: dict[str, Tokens] = {}
    columns = []
    for name, texts in (("prompts", prompts), ("responses", responses)):
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence | np.ndarray) or getattr(texts, "ndim", 1) == 0:
            raise TypeError(f"{name} must be a list of texts, or of lists of token numbers, one per response, got {shown(texts)}")
        columns.append([_tokens(f"{name}[{number}]", text, tokenizer, vocabulary, cut) for number, text in enumerate(texts)])
    if len(columns[0]) != len(columns[1]) or not columns[0]:
        raise ValueError(f"prompts and responses must be as many, at least one, got {len(columns[0])} and {len(columns[1])}")
    return list(zip(*columns, strict=True))


def _tokens(name: str, text: Any, tokenizer: Any, vocabulary: int, cut: dict[str, Tokens]) -> Tokens:
    """Return the numbers of a text's tokens; raise unless they are at least one, and in the vocabulary."""
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError(f"tokenizer must be given where prompts or responses are texts, as {name} is, got {shown(text)}")
        if text not in cut:
            cut[text] = _tokens(name, tokenizer(text, add_special_tokens=False)["input_ids"], None, vocabulary, {})
        return cut[text]
    try:
        array = as_array(name, text)
    except (TypeError, ValueError):
        array = np.zeros(1)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= vocabulary:
        wanted = f"must be a text, or at least one token number from 0 to {vocabulary - 1}"
        raise ValueError(f"{name} {wanted}, got {'no token' if array.size == 0 else shown(text)}")
    return tuple(array.tolist())
