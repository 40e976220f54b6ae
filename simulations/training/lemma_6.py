"""U8, which two studies decide: on the training problems, and where the bound is nearly tight."""

from simulations.statements import stated

U8 = stated("U8")
