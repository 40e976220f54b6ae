"""What the statements of "Why GRPO Needs Normalization" assume."""

LINEAR = "log-linear policy, binary reward, one correct answer, exact gradients"
ORTHOGONAL = f"{LINEAR}, X_i X_j' = 0 for i != j"
WEAK = f"{LINEAR}, M <grad J_i, grad J_j> >= ||X_i grad J_j||^2/||X_i||^2 for all i, j"
BOUNDED = f"{WEAK}; ||grad J_i|| <= R1 ||grad J_j||, sqrt(V_i) <= R2 sqrt(V_j)"
