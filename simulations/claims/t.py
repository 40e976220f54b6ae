"""The statements of "TIC-GRPO"."""

from grpo_theory.evidence import Statement

PAPER = "arXiv 2508.02833"
OPEN = "needs the studies of token and trajectory ratios off policy"


def _open(number: int, where: str, text: str, kind: str, assumptions: str = "") -> Statement:
    return Statement(f"T{number}", f"{PAPER}, {where}" if where else PAPER, text, kind, assumptions, OPEN)


def _on_smollm2(part: str, text: str, kind: str) -> Statement:
    return Statement(part, f"question beside {PAPER}", f"SmolLM2: {text}", kind, whose="ours")


LANGUAGE_MODEL = (
    _on_smollm2(
        "T3/language model",
        "E||grad log P(s_T)||^2 = E sum_t ||grad log P(s_t|s_{t-1})||^2, after k updates on one rollout",
        "identity",
    ),
    _on_smollm2(
        "T6/language model",
        "after k updates on one rollout the mean update with token ratios is nearer to grad J(theta_0) than to grad J(theta_k)",
        "ordering",
    ),
    _on_smollm2(
        "T7/language model",
        "after k updates on one rollout the mean update with the trajectory ratio, leave-one-out, no clip, = grad J(theta_k)",
        "identity",
    ),
    _on_smollm2(
        "T7/language model, TIC",
        "after k updates on one rollout T times TIC's mean update (own sample in the mean, clipped at 1.2) = grad J(theta_k)",
        "identity",
    ),
    _on_smollm2(
        "T7/language model, error",
        "B = 32, G = 8, no clip: the trajectory ratio's squared error about grad J(theta_k) is below that of token ratios",
        "ordering",
    ),
    _on_smollm2(
        "T8/language model",
        "after k updates on one rollout the cosine of the mean update without any ratio and grad J(theta_k) is at least 0.95",
        "upper bound",
    ),
    _on_smollm2(
        "T15/language model",
        "KL penalty on leaving the model: at the maximiser the update divided by own length is at most 1/20 of that at the model",
        "upper bound",
    ),
    _on_smollm2(
        "T15/language model, direction",
        "at the model itself, the cosine of the mean update divided by the own length and grad J is at least 0.95",
        "upper bound",
    ),
)
STATEMENTS = (
    _open(1, "decomposition", "GRPO's gradient at theta_k = (1/TT) ghat(theta_0) + X1 + X2 + X3 + X4, as printed", "identity"),
    _open(2, "decomposition", "TIC's gradient = (1/T) gtilde(theta_k) + Y1 + Y2, as printed", "identity"),
    _open(3, "Property 4.1", "E||grad log P(s_T)||^2 = E sum_t ||grad log P(s_t|s_{t-1})||^2", "identity"),
    _open(4, "", "E_0||min(rho,1+e) grad log P_k||^2 <= (1+e) E_k||grad log P_k||^2", "upper bound"),
    _open(
        5,
        "",
        "||grad J|| <= R sqrt(2 L T log|V|), and J is T R L (2 log|V| + 1)-smooth",
        "upper bound",
        "score Lipschitz with constant L",
    ),
    _open(6, "", "GRPO's update estimates the gradient at the old policy, not at the current one", "ordering"),
    _open(7, "", "TIC estimates the gradient at the current policy", "identity"),
    _open(8, "", "dropping importance sampling altogether costs nothing noticeable", "upper bound"),
    _open(
        9,
        "Theorem 4.1",
        "GRPO: average squared gradient <= O(T^{7/2} log|V|/sqrt N avg M_n^2 sigma_n^2) + O(T^2 log|V|/|G|)",
        "rate",
    ),
    _open(10, "Theorem 4.2", "upper-only clip and 1/T: O(T^{5/2} log|V|/sqrt N) + O(T^2 log|V|/|G|)", "rate"),
    _open(
        11,
        "Theorem 4.3",
        "TIC: O(T log|V|/sqrt N) + O(T log|V|/|G|), the floor being an intrinsic bias of the group mean",
        "rate",
    ),
    _open(12, "", "E||X2||^2 <= (2L/|G|) log|V| and E||Y1||^2 <= 2(1+e_hi) L log|V|/(T|G|)", "upper bound"),
    _open(
        13, "", "sum x_i log^2 x_i on the simplex of n points is at most log^2 n for n >= 8 and 28/e^2 for n <= 7", "upper bound"
    ),
    _open(14, "", "TIC reaches a given level sooner than GRPO and GSPO at the same budget", "ordering"),
    _open(15, "not claimed, but practised", "dividing by the response's own length leaves the optimum where it is", "identity"),
    *LANGUAGE_MODEL,
)
