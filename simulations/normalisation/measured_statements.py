"""What is printed of one model's gradients; heads in training decide it, and so do sampled answers."""

from simulations.statements import stated

WITHIN, ORTHOGONAL_GRADIENTS = stated("N9/within", "N11/printed")
