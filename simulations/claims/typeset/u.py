"""The statements of "Demystifying GRPO: Its Policy Gradient is a U-Statistic", typeset, and what stands beside them."""

FORMS = {
    "U1": r"The leave-one-out gradient of a group is a U-statistic: $$\frac1G\sum_{i=1}^G W_i\left(Z_i-\bar "
    r"Z_{-i}\right)=\frac{2}{G(G-1)}\sum_{i<j}\tfrac12(W_i-W_j)(Z_i-Z_j)$$",
    "U1/own-mean": r"With the own sample in the group's mean it is $1-1/G$ times the leave-one-out gradient.",
    "U2": r"The projection of the U-statistic's kernel $h$ on one response $(y,z)$ to the prompt $x$ is "
    r"$$2h_1(y,z)=W(y)\,\left[z-V(x)\right]$$",
    "U2/printed": r"As printed: $2h_1=W(z-V)$.",
    "U2/corrected": r"$$2h_1(y,z)=W(y)\,\left[z-V(x)\right]+g(x)$$",
    "U3": r"With $Z$ bounded, at each prompt "
    r"$$\mathrm{MSE}(x)=\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(x)}{G}+O\!\left(\frac{E\|W\|^2}{G^2}\right)$$",
    "U3/printed": r"The remainder's constant is at most $1$: "
    r"$$\mathrm{MSE}(x)-\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}}{G}\le\frac{(\mathrm{range}\,Z)^2E\|W\|^2}{G^2}$$",
    "U3/corrected": r"$$\mathrm{MSE}(x)=\frac{\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(x)}{G}+\frac{\mathrm{Var}(Z\mid "
    r"x)\,E\left[\|W\|^2\mid x\right]+\|g(x)\|^2}{G(G-1)}\qquad\text{for every }G\ge2$$",
    "U3/rate": r"The remainder falls as $G^{-2}$.",
    "U4": r"$$\mathrm{MSE}=\frac{c_1}{B}+\frac{c_2}{BG}+O\!\left(\frac{E\|W\|^2}{BG^2}\right),$$ $$c_1=E\|g(X)-g\|^2,\quad "
    r"c_2=E\,\mathrm{tr}\,\Sigma_{\mathrm{oracle}}(X)$$",
    "U4/printed": r"The remainder's constant is at most $1$: "
    r"$$\mathrm{MSE}-\frac{c_1}B-\frac{c_2}{BG}\le\frac{(\mathrm{range}\,Z)^2E\|W\|^2}{BG^2}$$",
    "U4/term": r"The third term is $c_3/(BG^2)$ with one $c_3$ for all $G$: it gives the same $c_3$ at $G=2$ and at $64$.",
    "U4/corrected": r"$$\mathrm{MSE}=\frac{c_1}{B}+\frac{c_2}{BG}+\frac{c_3}{BG(G-1)},$$ $$c_3=E\left[\mathrm{Var}(Z\mid "
    r"X)\,E[\|W\|^2\mid X]+\|g(X)\|^2\right]$$",
    "U5": r"Without terms of higher order in $G$, for a prompt and for a batch, "
    r"$$\mathrm{MSE}(\mathrm{GRPO})=\mathrm{MSE}(\mathrm{oracle})$$",
    "U5/prompt": r"For each prompt, $\mathrm{MSE}(\mathrm{GRPO})/\mathrm{MSE}(\mathrm{oracle})-1$ falls as $G^{-1}$.",
    "U5/batch": r"For a batch, $\mathrm{MSE}(\mathrm{GRPO})-\mathrm{MSE}(\mathrm{oracle})$ falls as $G^{-2}$, and not as "
    r"$G^{-1}$.",
    "U6": r"If $\|W\|^2$ and $Z$ are uncorrelated given $X$, then as $G$ grows "
    r"$$\mathrm{MSE}(\mathrm{GRPO})\le\mathrm{MSE}(C)\quad\text{for every baseline }C=C(x),$$ and it is strictly below the "
    r"error without a baseline if $V(x)\ne0$.",
    "U6/assumption": r"Assumption 2: $\|W\|^2$ and $Z$ are uncorrelated given $X$, so the largest absolute correlation is $0$.",
    "U6/correlated": r"The same as printed, where $\|W\|^2$ and $Z$ are correlated.",
    "U6/strict, correlated": r"Leave-one-out is less noisy than no baseline as $G$ grows, where $\|W\|^2$ and $Z$ are "
    r"correlated.",
    "U6/corrected": r"$$\mathrm{tr}\,\Sigma_C-\mathrm{tr}\,\Sigma_V=E\|W\|^2\left[(C-b^*)^2-(V-b^*)^2\right],$$ $$"
    r"b^*=\frac{E\|W\|^2Z}{E\|W\|^2}$$ A baseline $C$ beats $V$ if and only if it is nearer to $b^*$.",
    "U7": r"If $J$ is $L$-smooth with Polyak-Lojasiewicz constant $\mu$ and $\beta<1/(2L)$, then for every $n$ "
    r"$$E\Delta_n\le\left(1-2\mu\beta+L\mu\beta^2\right)^nE\Delta_0+\frac{L\beta^2M}{4\mu\beta-2L\mu\beta^2}$$",
    "U7/sharp": r"Near the maximiser, with constant steps, $E\Delta_n=\tfrac12\mathrm{tr}(\mathrm{diag}(\lambda)\,C_n)$ with "
    r"$C_n$ by the exact linear recursion.",
    "U8": r"With steps $\beta/(i+i_0)$, $\beta>1/(2\mu)$ and $m=n+1+i_0$, for every $n$ "
    r"$$E\Delta_n\le\max\left\{\frac{(1+\varepsilon)L\beta^2M}{(4\mu\beta-2)\,m},\ \frac{a\,n_0}{m}\right\}$$",
    "U8/printed": r"With steps $\beta/i$ as printed, for every $n$, "
    r"$$E\Delta_n\le\max\left\{\frac{(1+\varepsilon)L\beta^2M}{(4\mu\beta-2)\,n},\ \frac{a\,n_0}n\right\}$$",
    "U8/sharp": r"Near the maximiser, with harmonic steps, $E\Delta_n=\tfrac12\mathrm{tr}(\mathrm{diag}(\lambda)\,C_n)$ with "
    r"$C_n$ by the exact linear recursion.",
    "U8/lemma/printed": r"Let $0\le a_n\le a$, $A>1$ and $a_{n+1}\le\left(1-\frac An+\frac B{n^2}\right)a_n+\frac C{n^2}$. "
    r"Then $$a_n\le\max\left\{\frac{(1+\varepsilon)C}{(A-1)n},\ \frac{a\,n_0}{n}\right\},$$ $$"
    r"n_0=\left\lceil\frac{B(1+\varepsilon)}{\varepsilon(A-1)}\right\rceil+1$$",
    "U8/lemma/used": r"The lemma as printed, where $B\ge A^2/4$, as it is in Lemma 6.",
    "U8/lemma/corrected": r"The same holds with a starting index $n_0$ that is at least $A$.",
    "U9": r"At a fixed budget $N=BG$ the error $c_1/B+c_2/(BG)+c_3/(BG^2)$ is least at $$G^*=\sqrt{c_3/c_1}$$ and this group "
    r"size is the best one for every budget, number of iterations and step schedule.",
    "U9/best/printed": r"The whole group size of least error is that of the printed law, next to $\sqrt{c_3/c_1}$.",
    "U9/best/remainder": r"The same with $E\|W\|^2$, which Proposition 3 prints in its remainder, in the place of $c_3$.",
    "U9/best/corrected": r"With the exact third term, $c_3/(BG(G-1))$, the error is least next to $$G^*=1+\sqrt{c_3/c_1}$$",
    "U9/bound/printed": r"Lemma 6's bound, with the largest error over a region, is least next to $\sqrt{C_3/C_1}$, suprema of "
    r"$c_3$ and $c_1$.",
    "U9/bound/corrected": r"The minimiser of $C_1/B+C_2/(BG)+C_3/(BG(G-1))$, suprema in the place of the constants: "
    r"$$G^*=1+\sqrt{C_3/C_1}$$",
    "U9/stays": r"$G^*$ of the gradient's error stays within a factor of $\sqrt2$ of that of the start while the policy learns.",
    "U9/kept": r"Kept from the start, $G^*$ has at most $\sqrt2$ times the least error of the gradient while the policy learns.",
    "U9/schedules": r"The $G$ that trains best with one schedule loses at most $\sqrt2$ times what any other does with another "
    r"($n=32$).",
    "U9/printed": r"$G=\sqrt{c_3/c_1}$ of the start, on the grid, trains a better policy than the law's best $G$.",
    "U9/noise-costs": r"Noise only costs: $E\,J(\theta_n)$ is at most $J$ of the noise-free run ($n=16$).",
    "U9/budgets": r"The $G$ that trains best at the smallest budget loses at most $\sqrt2$ times what any other does at the "
    r"largest ($n=32$).",
    "U10": r"With steps $\beta/i$ and a compact $\Theta$, $$d(\theta_n,\Theta^*)\to0,$$ and $E\Delta_n$ falls as $1/n$.",
    "U10/distance": r"$E\,d(\theta_n,\Theta^*)^2$ falls as $1/n$, so $d(\theta_n,\Theta^*)\to0$ in probability.",
    "U11": r"$$n\,\Delta(\theta_n)\to\sum_kw_k\,\chi^2_{1,k},$$ $$w_k\text{ the eigenvalues of "
    r"}\tfrac12S^{1/2}\mathrm{diag}(\lambda)S^{1/2},$$ $$S=\int_0^\infty e^{-(-\beta H^*-I/2)u}\,Q'\Gamma Q\,e^{-(-\beta "
    r"H^*-I/2)u}\,du$$",
    "U11/printed": r"The limit law of $n\,\Delta(\theta_n)$, with $S$ as printed.",
    "U11/corrected": r"The covariance has the square of the step scale as a factor: $$S=\beta^2\int_0^\infty e^{-(-\beta "
    r"H^*-I/2)u}\,Q'\Gamma Q\,e^{-(-\beta H^*-I/2)u}\,du$$",
    "U11/normal": r"$\sqrt n\,Q'(\theta_n-\theta^*)$ is normal: its Mahalanobis distance is $\chi^2_r$.",
    "U11/mean": r"$E\,n\,\Delta(\theta_n)=\sum_kw_k$.",
    "U11/normal gap": r"$n\,\Delta(\theta_n)$ itself is normal, with 32 comparable weights.",
    "U11/finite": r"$E\,n\,\Delta(\theta_n)$ at finite $n$ by the exact recursion, $\beta$ just above $1/(2\lambda_{\min})$.",
    "U11/transient": r"The slowest part of $E\,n\,\Delta$ falls short of its limit by a multiple of "
    r"$n^{-(2\beta\lambda_{\min}-1)}$.",
    "U11/skewness": r"The standardised gap is $\mathrm{skewness}/(6\sqrt{2\pi})$ away from the normal, within $1\%$.",
    "U11/comparable": r"The distance of the standardised gap from the normal falls as $M^{-1/2}$.",
    "U12": r"At a fixed number of prompts, $$w_k(\mathrm{GRPO})-w_k(\mathrm{oracle})=O(G^{-2})$$",
    "U13": r"If $Q'WW'Q$ and $Z$ are uncorrelated given $X$, no baseline that depends on the prompt alone has smaller weights: "
    r"$$w_k(\mathrm{oracle})\le w_k(C)\quad\text{for every }k\text{ and every }C=C(x)$$",
    "U13/estimated": r"Nor smaller than the leave-one-out mean's, up to $O(G^{-2})$.",
    "U14": r"With standardised advantages, token ratios $\mu_t$ and a KL term the estimator tends, as $G$ grows, to the "
    r"U-statistic with the kernel $$\tfrac12\left[\sum_t\mu^i_tW^i_t-\sum_t\mu^j_tW^j_t\right]\frac{Z_i-Z_j}{\sigma}"
    r"+\tfrac\kappa2\left[\sum_t(\mu^i_t-1)W^i_t+\sum_t(\mu^j_t-1)W^j_t\right]$$",
    "U14/standardised": r"The squared distance from the U-statistic over the true deviation falls as $1/G$, from $256$ to "
    r"$1024$.",
    "U14/printed": r"With $\pi_{\mathrm{ref}}=\pi_0$ the K3 penalty adds $\kappa\sum_t(\mu_t-1)W_t$, $\mu_t=\pi/\pi_0$.",
    "U14/corrected": r"With $\pi_{\mathrm{ref}}=\pi_0$ the K3 penalty adds the inverse ratio: "
    r"$$\kappa\sum_t\left(\frac1{\mu_t}-1\right)W_t$$",
    "U15": r"About the gradient with the sequential ratio, $$\mathrm{MSE}=O\!\left(\frac{m^2\eta^2}{\varepsilon}"
    r"\right)+O\!\left(\frac{\kappa^2m^2\eta^2}{\varepsilon^3}\right)+\frac{\mathrm{tr}\,\Sigma_1}{G}"
    r"+O\!\left(\frac1{\varepsilon G^2}\right)$$",
    "U16": r"With binary rewards the algorithm is consistent for $$\mathrm{argmax}_\theta\ "
    r"E\left[2\arcsin\sqrt{V(X)}\right]-\kappa\,\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$$",
    "U16/printed": r"At the maximiser that is printed the mean update is $0$.",
    "U16/corrected": r"One token, groups of $G$: the mean update is the gradient of "
    r"$$E\left[h_G(V(X))\right]-\kappa\,\mathrm{KL}(\pi_{\mathrm{ref}}\,\|\,\pi),$$ where $h_G$ is a sum of incomplete beta "
    r"functions.",
    "U17": r"With $r=\pi_{\mathrm{ref}}/\pi$ the term $r-\log r-1$ is unbiased for $\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$, "
    r"and its gradient is estimated by $$\sum_tW_t\left(1-\frac{\pi}{\pi_{\mathrm{ref}}}\right)$$",
    "U17/value": r"On samples from $\pi$ the mean of $\sum_t r_t-\log r_t-1$ is $\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$.",
    "U17/printed": r"The derivative of the K3 term is $\sum_tW_t(1-\pi/\pi_{\mathrm{ref}})$.",
    "U17/corrected": r"The derivative of the K3 term is $$\sum_tW_t\left(1-\frac{\pi_{\mathrm{ref}}}{\pi}\right)$$",
    "U17/printed mean": r"The mean of $\sum_tW_t(1-\pi/\pi_{\mathrm{ref}})$ is the gradient that the K3 term in the loss has.",
    "U18": r"At a maximiser, for every positive eigenvalue $\lambda$ of $-H$, $$\mu\le\lambda,\qquad\mu\le L$$",
    "U18/order": r"$\mu\le L$.",
}
