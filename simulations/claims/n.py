"""The statements of "Why GRPO Needs Normalization"."""

from grpo_theory.evidence import Statement

PAPER = "arXiv 2601.23135"
OPEN = "needs the studies of curvature and of division by the standard deviation"
LINEAR = "log-linear policy, binary reward, one correct answer, exact gradients"


def _open(number: int, where: str, text: str, kind: str, assumptions: str = LINEAR) -> Statement:
    return Statement(f"N{number}", f"{PAPER}, {where}" if where else PAPER, text, kind, assumptions, OPEN)


STATEMENTS = (
    _open(1, "", "||Hess J_i|| <= 4 X^2 V_i", "upper bound"),
    _open(2, "", "J_i is (X/2)-Lipschitz", "upper bound"),
    _open(3, "", "within radius sqrt(V_i)/X of theta, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))", "upper bound"),
    _open(4, "", "X_i X_j' = 0 for all i != j: prompts do not interact", "identity"),
    _open(
        5,
        "Theorem 3.1",
        "eta = 1/X^2: one-step gain >= ||grad J_i||^2/(2 n X^2), sum_t E||grad J_i||^2 <= 2 n (1 - p_i(0)) X^2",
        "upper bound",
    ),
    _open(
        6,
        "Theorem 3.2",
        "eta = 1/(2X^2), C_t >= sqrt(V_i): gain >= 3||grad J_i||^2/(16 n X^2 C_t), sum <= 2 n (1 - p_i(0)) X^2 (8/(3T)) sum C_t",
        "upper bound",
    ),
    _open(
        7,
        "",
        "GRPO's rate is strictly better when the average over prompts and iterations of (8/3) sqrt(V) is below 1",
        "ordering",
    ),
    _open(
        8,
        "Theorems 3.3 and 3.4",
        "with weakly interacting prompts the same with max(1, M/2), and with max(R1, 5M/8) R2",
        "upper bound",
    ),
    _open(
        9,
        "",
        "reward variance is a proxy of local curvature: correlation 0.34 within an iteration, none across iterations",
        "equality",
        "",
    ),
    _open(10, "", "prompts' representations are nearly orthogonal: |cos| mean 0.088, over 90% below 0.15", "equality", ""),
    _open(11, "", "gradient cosines drift: share |cos| < 0.1 is 97.7%, 80.3%, 52.4% at steps 0, 260, 500", "equality", ""),
    _open(
        12, "", "three phases: division accelerates, is stable, and no longer gains once orthogonality is lost", "ordering", ""
    ),
)
