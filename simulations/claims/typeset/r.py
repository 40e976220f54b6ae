"""Neighbouring results and practice, typeset."""

FORMS = {
    "R1": r"With binary rewards the expected update of a group estimator is $h'(p)\,\nabla p$, and as $G$ grows GRPO's tends "
    r"to $$h(p)=2\arcsin\sqrt p,\qquad h'(p)=\frac1{\sqrt{p(1-p)}}$$",
    "R1/update": r"The expected update is $h'(p)\,\nabla p$, with $h'$ in closed form, for every trainer's convention.",
    "R1/limit": r"GRPO's $h'(p)$ tends to $1/\sqrt{p(1-p)}$ as $1/G$.",
    "R1/greatest": r"With ddof 1 GRPO's $h'(p)$ is at most $(G-1)/\sqrt G$, its value at $p=0$ and $1$.",
    "R2": r"Of all baselines that depend on the prompt alone the least noisy is $$b^*(x)=\frac{E[\|W\|^2Z\mid "
    r"x]}{E[\|W\|^2\mid x]}$$ Judged at $G=64$: its error is at most that of the value baseline.",
    "R3": r"Given a mixed group $S$, group-relative advantages are biased: $$A-E[\hat A\mid "
    r"S]=\frac{p(1-p)^G+p^{G+1}-p^G}{1-(1-p)^G-p^G}$$",
    "R3/printed": r"The group's mean, given a mixed group, is off by the printed term.",
    "R3/gradient": r"$$E[\mathrm{update}\mid S]=\frac{(1-1/G)\,g}{1-(1-p)^G-p^G}$$ No direction is lost at a prompt.",
    "R4": r"Leave-one-out James-Stein baselines are unbiased and have a lower error.",
    "R5": r"Which gradient do $k_1=-\log r$, $k_2=\tfrac12\log^2r$ and $k_3=r-1-\log r$, with $r=\pi_{\mathrm{ref}}/\pi$, "
    r"estimate: in the reward or in the loss, on and off policy?",
    "R5/k1 in reward": r"On policy: the gradient of $\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$.",
    "R5/k2 in reward": r"On policy: the gradient of $E_\pi[\tfrac12\sum_t\ell_t^2]$ less its part through "
    r"$\ell_t=\log(\pi/\pi_{\mathrm{ref}})$.",
    "R5/k3 in reward": r"On policy: the gradient of $\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$ less that of "
    r"$\mathrm{KL}(\pi_{\mathrm{ref}}\,\|\,\pi)$ at the prefixes of $\pi$.",
    "R5/k2 in loss": r"On policy: the gradient of $\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})$ with the prefixes held fixed.",
    "R5/k3 in loss": r"On policy: the gradient of $\mathrm{KL}(\pi_{\mathrm{ref}}\,\|\,\pi)$ with the prefixes of $\pi$ held "
    r"fixed.",
    "R5/k1 in reward/off policy": r"Trajectory ratio: the gradient of "
    r"$\mathrm{KL}(\pi\,\|\,\pi_{\mathrm{ref}})-\mathrm{KL}(\pi\,\|\,\pi_0)$.",
    "R5/k1 in loss/off policy": r"No ratio: the gradient of $-\mathrm{KL}(\pi_0\,\|\,\pi)$.",
    "R5/k2 in loss/off policy": r"No ratio: the gradient of $E_0[\tfrac12\sum_t\ell_t^2]$.",
    "R5/k3 in loss/off policy": r"No ratio: the gradient of $E_0[\sum_t(e^{-\ell_t}-1+\ell_t)]$.",
    "R6": r"On a softmax bandit with the step $\tfrac25$ from the uniform policy, $$\|\nabla J\|\ge\pi(a^*)\,\Delta,\qquad "
    r"\|\nabla^2J\|\le\tfrac52,\qquad\Delta_t\le\frac{5K^2}t$$",
    "R6/slope": r"$\|\nabla J\|\ge\pi(a^*)\,\Delta$.",
    "R6/slope, sharp": r"$\|\nabla J\|\ge\sqrt{K/(K-1)}\,\pi(a^*)\,\Delta$, attained where the other responses are alike.",
    "R6/smoothness": r"$\|\nabla^2J\|\le\tfrac52$.",
    "R6/smoothness, sharp": r"$\|\nabla^2J\|\le1/(3\sqrt3)$, attained by two responses.",
    "R6/gap": r"$\Delta_t\le5K^2/t$.",
    "R6/gap, sharper": r"$\Delta_t\le2.601\,K(K-1)/t$.",
    "R6/gap, linear": r"$\Delta_t\le\tfrac52K/t$, linear in $K$; measured, not proved.",
    "R6/rate": r"$\Delta_t$ falls as $1/t$.",
    "R6/rate, constant": r"$\Delta_t$ is $(1-1/K)/(\eta t)$ whatever the rewards, one best response: off by at most $5\%$ up "
    r"to $t=10{,}000$.",
    "R6/divided": r"Divided by the reward's standard deviation, $\Delta_t$ falls as $1/t^2$.",
    "R6/divided, constant": r"Divided, $\Delta_t$ is $4(1-1/K)^2$ times the mean shortfall over $(\eta t)^2$: off by at most "
    r"$5\%$ up to $t=10{,}000$.",
    "R7": r"For any samples, a step at the sampling policy on $$\frac1{K^2}\sum_{i<j}(a_i-a_j)^2$$ is $2\tau$ times the "
    r"group-relative update.",
    "R7/away": r"At any other policy too, with $a_i=r_i-\tau\log(\pi/\pi_0)$ in the place of the rewards.",
    "dynamic sampling/dropped": r"Uniform groups dropped from batches of $B$: the plain mean update times $\frac{1-(1-P)^B}P$, "
    r"$P$ the probability of a mixed group.",
}
