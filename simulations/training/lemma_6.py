"""U8, which two studies decide: on the training problems, and where the bound is nearly tight."""

from grpo_theory.evidence import Statement
from simulations.sources import DEMYSTIFYING

U8 = Statement(
    "U8",
    f"{DEMYSTIFYING}, Lemma 6(b)",
    "steps beta/(i + i0), m = n + 1 + i0: E Delta_n <= max{ (1 + eps) L beta^2 M/((4 mu beta - 2) m), a n_0/m }, every n",
    "upper bound",
    "J is L-smooth and PL with constant mu; beta > 1/(2 mu)",
    formula=r"With steps $\beta/(i+i_0)$, $\beta>1/(2\mu)$ and $m=n+1+i_0$, for every $n$ "
    r"$$E\Delta_n\le\max\left\{\frac{(1+\varepsilon)L\beta^2M}{(4\mu\beta-2)\,m},\ \frac{a\,n_0}{m}\right\}$$",
)
