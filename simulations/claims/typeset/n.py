"""The statements of "Why GRPO Needs Normalization", typeset, and what stands beside them."""

FORMS = {
    "N1": r"$$\|\nabla^2J_i\|\le4X^2V_i,\qquad V_i=p_i(1-p_i)$$",
    "N1/several": r"The same bound with several correct answers.",
    "N1/sharp": r"$$\|\nabla^2J_i\|\le X^2V_i\max\left(\tfrac12,\,2\left|1-2p_i\right|\right)$$"
    r" No function of $p_i$ is better; two answers need no $\tfrac12$.",
    "N1/Hessian": r"$\nabla^2J_i=V\left\{\mathrm{Cov}_+-\mathrm{Cov}_-+(1-2p)\,m\,m'\right\}$, of the features given a correct "
    r"and a wrong answer, $m$ their means apart.",
    "N1/two responses": r"Two answers: $\|\nabla^2J_i\|=V\left|1-2p\right|\,\|x_1-x_2\|^2$, which is $0$ where $V$ is largest.",
    "N2": r"$$\|\nabla J_i\|\le\tfrac12X$$",
    "N2/several": r"The same bound with several correct answers.",
    "N2/sharp": r"$$\|\nabla J_i\|\le\sqrt2\,V_iX\le\frac{\sqrt2}4X$$",
    "N3": r"Within the radius $\sqrt{V_i}/X$ of $\theta$, $$\|\nabla^2J_i\|\le\tfrac52X^2\sqrt{V_i(\theta)}$$",
    "N3/several": r"The same bound with several correct answers.",
    "N3/sharp": r"$$\|\nabla^2J_i\|\le0.5873\,X^2\sqrt{V_i(\theta)}$$",
    "N4": r"If $X_iX_j'=0$ for all $i\ne j$, no step at one prompt moves another's success probability.",
    "N5": r"With $\eta=1/X^2$ and exact gradients a step gains at least $\|\nabla J_i\|^2/(2nX^2)$, and $$\sum_tE\|\nabla "
    r"J_i\|^2\le2n\,(1-p_i(0))\,X^2$$",
    "N5/gain": r"With prompt $i$ drawn, curvature takes at most half of the first-order gain $\eta\,\|\nabla J_i\|^2$.",
    "N5/gain, sharp": r"With $\eta=3\sqrt3/X^2$ too, so the gain is at least $\tfrac{3\sqrt3}2\|\nabla J_i\|^2/X^2$.",
    "N5/sum": r"$\sum_tE\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2$.",
    "N5/minimum": r"$T\min_{t<T}E\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2$.",
    "N5/sum, sharp": r"With $\eta=3\sqrt3/X^2$, $\sum_tE\|\nabla J_i\|^2\le\tfrac2{3\sqrt3}\,n\,(1-p_i(0))\,X^2$.",
    "N6": r"Divided by $\sqrt{V_i}$, with $\eta=1/(2X^2)$ and $C_t\ge\sqrt{V_i}$, a step gains at least $3\|\nabla "
    r"J_i\|^2/(16nX^2C_t)$, and $$\sum_{t<T}E\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2\cdot\frac8{3T}\sum_tC_t$$",
    "N6/gain": r"With prompt $i$ drawn, curvature takes at most $\tfrac58$ of the first-order gain $\eta\,\|\nabla "
    r"J_i\|^2/\sqrt{V_i}$.",
    "N6/gain, printed step": r"At the printed step the gain is at least $0.435\,\|\nabla J_i\|^2/(X^2\sqrt{V_i})$.",
    "N6/gain, sharp": r"With $\eta=1.7/X^2$ the gain is at least $0.889\,\|\nabla J_i\|^2/(X^2\sqrt{V_i})$.",
    "N6/printed": r"The sum as printed, with $C_t=E\sqrt{V_i}$.",
    "N6/corrected": r"$$\left[\frac1T\sum_{t<T}E\|\nabla "
    r"J_i\|\right]^2\le2n\,(1-p_i(0))\,X^2\cdot\frac8{3T}\cdot\frac1T\sum_tE\sqrt{V_i}$$",
    "N6/minimum": r"$$\min_{t<T}\left[E\|\nabla J_i\|\right]^2\sum_t\frac1{E\sqrt{V_i}}\le\tfrac{16}3\,n\,(1-p_i(0))\,X^2$$",
    "N6/weighted": r"$$\sum_tE\!\left[\frac{\|\nabla J_i\|^2}{\sqrt{V_i}}\right]\le\tfrac{16}3\,n\,(1-p_i(0))\,X^2$$",
    "N6/weighted, sharp": r"With $\eta=1.7/X^2$, $\sum_tE\left[\|\nabla J_i\|^2/\sqrt{V_i}\right]\le n\,(1-p_i(0))\,X^2/0.889$.",
    "N7": r"GRPO's rate is strictly better when the average over prompts and iterations of $\tfrac83\sqrt V$ is below $1$.",
    "N7/printed": r"Where the average of $\tfrac83\sqrt V$ is below $1$, mean success after $T$ updates is higher with "
    r"division, printed steps.",
    "N7/best steps": r"At the steps of the best guarantees, $3\sqrt3/X^2$ and $1.7/X^2$, the divided update's success is "
    r"higher too.",
    "N7/flow, plain": r"In small steps $u+\sinh u=kt/2+\mathrm{const}$ with $u=\mathrm{logit}\,p$, $K$ tabular answers, "
    r"$k=K/(K-1)$.",
    "N7/flow, divided": r"Divided by $\sqrt V$, in small steps, $2\sinh(u/2)=kt/2+\mathrm{const}$.",
    "N7/escape, plain": r"The time from $p$ to $\tfrac12$ grows as $1/p$ without division.",
    "N7/escape, divided": r"And as $1/\sqrt p$ with division by the true deviation.",
    "N8": r"If $M\langle\nabla J_i,\nabla J_j\rangle\ge\|X_i\nabla J_j\|^2/\|X_i\|^2$ for all $i,j$, the same bounds hold with "
    r"the factor $\max(1,M/2)$, and with division by the deviation $\max(R_1,\tfrac58M)R_2$.",
    "N8/plain gain": r"With $\eta=1/(X^2m)$, $m=\max(1,M/2)$, the mean gain of $J_i$ is at least $\|\nabla J_i\|^2/(2nX^2m)$.",
    "N8/plain sum": r"At that step $\sum_tE\|\nabla J_i\|^2\le2n\,m\,(1-p_i(0))\,X^2$.",
    "N8/divided gain": r"With $\eta=1/(2X^2S)$, $S=\max(R_1,\tfrac58M)R_2$, the mean gain is at least $3\|\nabla "
    r"J_i\|^2/(16nX^2S\sqrt{V_i})$.",
    "N8/divided sum": r"At that step, with $C_t=E\sqrt{V_i}$, $$\sum_{t<T}E\|\nabla "
    r"J_i\|^2\le2n\,S\,(1-p_i(0))\,X^2\cdot\frac8{3T}\sum_tC_t$$",
    "N8/divided sum, corrected": r"$$\left[\frac1T\sum_{t<T}E\|\nabla "
    r"J_i\|\right]^2\le2n\,S\,(1-p_i(0))\,X^2\cdot\frac8{3T}\cdot\frac1T\sum_tE\sqrt{V_i}$$",
    "N8/divided sum, weighted": r"$$\sum_tE\!\left[\frac{\|\nabla "
    r"J_i\|^2}{\sqrt{V_i}}\right]\le\tfrac{16}3\,n\,S\,(1-p_i(0))\,X^2$$",
    "N8/divided gain, appendix": r"The same gain with $S=\max(R_1R_2,M/2)$, as the appendix prints it.",
    "N8/divided gain, without R1": r"The same gain with $S=\max(1,\tfrac58M)R_2$: $R_1$ is not needed.",
    "N8/divided gain, without R2": r"The same gain with $S=\max(R_1,\tfrac58M)$: is $R_2$ needed?",
    "N8/conflict, gain": r"Where no $M$ exists, the mean gain of $J_i$ is still at least $\|\nabla J_i\|^2/(2nX^2)$.",
    "N8/conflict, sum": r"Where no $M$ exists, still $\sum_tE\|\nabla J_i\|^2\le2n\,(1-p_i(0))\,X^2$ with $\eta=1/X^2$.",
    "N9": r"Reward variance is a proxy of local curvature within an iteration, and not across iterations.",
    "N9/Hessian": r"Over the prompts of an iteration $V_i$ and $\|\nabla^2J_i\|$ have a rank correlation of at least $0.9$.",
    "N10": r"Prompts' representations are nearly orthogonal: $\left|\cos\right|$ has mean $0.088$, and over $90\%$ are below "
    r"$0.15$.",
    "N11": r"Gradient cosines drift: the share of $\left|\cos\right|<0.1$ is $97.7\%$, $80.3\%$, $52.4\%$ at steps $0$, $260$, "
    r"$500$.",
    "N12": r"Three phases: division accelerates, then is stable, and no longer gains once orthogonality is lost.",
}
