"""The statements of "Why GRPO Needs Normalization"."""

from grpo_theory.evidence import Statement
from simulations.claims.u import DERIVED, OURS

PAPER = "arXiv 2601.23135"
CURVATURE = DERIVED(30)
OPEN = "needs the studies of curvature and of division by the standard deviation"
LINEAR = "log-linear policy, binary reward, one correct answer, exact gradients"


def _open(number: int, where: str, text: str, kind: str, assumptions: str = LINEAR) -> Statement:
    return Statement(f"N{number}", f"{PAPER}, {where}" if where else PAPER, text, kind, assumptions, OPEN)


def _several(paper: str, text: str) -> Statement:
    return Statement(
        f"{paper}/several", f"question beside {PAPER}", f"several correct answers: {text}", "upper bound", whose=OURS
    )


STATEMENTS = (
    Statement("N1", PAPER, "||Hess J_i|| <= 4 X^2 V_i: left over right is at most 1", "upper bound", LINEAR),
    _several("N1", "||Hess J_i|| <= 4 X^2 V_i"),
    Statement(
        "N1/sharp",
        CURVATURE,
        "||Hess J_i|| <= X^2 V max(1/2, 2|1 - 2p|), no 1/2 if K = 2; no better function of p; any number of correct answers",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N1/Hessian",
        CURVATURE,
        "Hess J_i = V {Cov+ - Cov- + (1 - 2p) m m'}, of the features given a correct and a wrong one, m their means apart",
        "identity",
        whose=OURS,
    ),
    Statement(
        "N1/two responses",
        CURVATURE,
        "two answers: ||Hess J_i|| = V |1 - 2p| ||x_1 - x_2||^2, which is 0 where V is largest",
        "identity",
        whose=OURS,
    ),
    Statement("N2", PAPER, "J_i is (X/2)-Lipschitz: ||grad J_i|| over X/2 is at most 1", "upper bound", LINEAR),
    _several("N2", "||grad J_i|| <= X/2"),
    Statement(
        "N2/sharp",
        CURVATURE,
        "||grad J_i|| <= sqrt(2) V X <= sqrt(2)/4 X, attained by two answers; any number of correct answers",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N3", PAPER, "within radius sqrt(V_i)/X of theta, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))", "upper bound", LINEAR
    ),
    _several("N3", "within radius sqrt(V_i)/X, ||Hess J_i|| <= (5/2) X^2 sqrt(V_i(theta))"),
    Statement(
        "N3/sharp",
        CURVATURE,
        "within radius sqrt(V_i)/X, ||Hess J_i|| <= 0.5873 X^2 sqrt(V_i(theta)), attained by two answers at p = 0.1025",
        "upper bound",
        whose=OURS,
    ),
    Statement(
        "N4",
        PAPER,
        "X_i X_j' = 0 for all i != j: no step at one prompt, divided or not, moves another's success probability",
        "identity",
        LINEAR,
    ),
    Statement(
        "N4/paths",
        CURVATURE,
        "and every prompt's success probability has the path that it has when it is trained alone, with as many of its own steps",
        "identity",
        whose=OURS,
    ),
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
