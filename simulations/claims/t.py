"""The statements of "TIC-GRPO"."""

from grpo_theory.evidence import Statement
from simulations.claims.u import DERIVED, PARTS

PAPER = "arXiv 2508.02833"
OPEN = "needs the studies of token and trajectory ratios off policy"


def _open(number: int, where: str, text: str, kind: str, assumptions: str = "") -> Statement:
    return Statement(f"T{number}", f"{PAPER}, {where}" if where else PAPER, text, kind, assumptions, OPEN)


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
    Statement(
        "T8/training",
        PAPER,
        "without ratio and clip GRPO needs at most 5% more updates to a level, each at its best step",
        "upper bound",
    ),
    Statement(
        "T8/one token",
        DERIVED(23),
        "one token, advantages that add up to 0: m updates without ratio on a rollout are one of m times the step on all of it",
        "identity",
        whose="ours",
    ),
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
    Statement("T14", PAPER, "TIC reaches a given level sooner than GRPO and GSPO at the same budget", PARTS),
    Statement(
        "T14/against GRPO", PAPER, "fewer updates to a level than GRPO as published, each at its best step size", "ordering"
    ),
    Statement(
        "T14/against GSPO", PAPER, "fewer updates to a level than GSPO as published, each at its best step size", "ordering"
    ),
    Statement(
        "T14/against GSPO, wide clip",
        f"question beside {PAPER}",
        "fewer updates to a level than GSPO with a clip of 0.2, each at its best step size",
        "ordering",
        whose="ours",
    ),
    Statement(
        "T14/ratio",
        f"{PAPER}, ablation",
        "the trajectory ratio in the place of the token ratio, nothing else changed, takes fewer updates",
        "ordering",
    ),
    Statement(
        "T14/clip",
        f"{PAPER}, ablation",
        "the upper-only clip in the place of the clip by sign, nothing else changed, takes fewer updates",
        "ordering",
    ),
    Statement("T14/both", f"{PAPER}, ablation", "both together take fewer updates than either alone", "ordering"),
    Statement(
        "T14/against no clip",
        f"question beside {PAPER}",
        "fewer updates to a level than the trajectory ratio without a clip, which is unbiased but for the own sample",
        "ordering",
        whose="ours",
    ),
    Statement(
        "T14/against no ratio",
        f"question beside {PAPER}",
        "fewer updates to a level than the same estimator without ratio and clip, each at its best step size",
        "ordering",
        whose="ours",
    ),
    _open(15, "not claimed, but practised", "dividing by the response's own length leaves the optimum where it is", "identity"),
)
