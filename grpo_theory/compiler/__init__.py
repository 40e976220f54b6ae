"""All that touches the inside of numba and of LLVM: compiled functions, lanes, first-class functions, what code relies on."""
