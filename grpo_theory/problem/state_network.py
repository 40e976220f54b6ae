"""Logits of a chain whose features are learned: a network of two layers reads the embedding of the state."""

from grpo_theory.arrays import Array
from grpo_theory.problem.logit_map import SmoothMap
from grpo_theory.problem.shared_map import SharedMap, for_all_prompts
from grpo_theory.problem.two_layer import TwoLayerMap
from grpo_theory.validation import check_room


class StateNetworkMap(SmoothMap):
    """The logits of every token in every state, from a network whose inputs are the embeddings of the states.

    All prompts share them: they differ in the state in which their responses begin.

    Parameters
    ----------
    n_prompts : int
        M.
    network : TwoLayerMap
        With S inputs, one for each state, and V logits, one for each token; D = S V.
    """

    def __init__(self, n_prompts: int, network: TwoLayerMap) -> None:
        self.n_prompts, self.network = n_prompts, network
        self.n_logits, self.dimension = network.n_prompts * network.n_logits, network.dimension

    def of_states(self, theta: Array) -> Array:
        """Return the logits, which all prompts share, shape (..., D)."""
        by_state = self.network.logits(theta)
        return by_state.reshape(*by_state.shape[:-2], self.n_logits)

    def logits(self, theta: Array) -> Array:
        """Return the logits, the same for each prompt, shape (..., M, D)."""
        return for_all_prompts(self.of_states(theta), self.n_prompts)

    def features(self, theta: Array) -> Array:
        """Return the derivatives of the logits of all states at theta (d,), shape (D, d)."""
        shape = self.n_logits, self.dimension
        check_room("the derivatives of the logits of all states", shape, "take a narrower network, or fewer states")
        return self.network.at(theta).features().reshape(shape)

    def at(self, theta: Array) -> SharedMap:
        """Return the derivatives of the logits at theta (d,): the map of a chain with these features."""
        return SharedMap(self.n_prompts, self.n_logits, self.features(theta))

    def bend(self, theta: Array, slopes: Array) -> Array:
        """Return sum_md slope_md times the second derivative of logit d, shape (d, d), for slopes (M, D)."""
        return self.network.bend(theta, slopes.sum(axis=0).reshape(self.network.n_prompts, self.network.n_logits))
