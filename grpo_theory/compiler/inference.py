"""A pass of our own in numba's compiler: types are inferred once more, for arguments of other types.

Of numba this subclasses `numba.core.compiler.CompilerBase` and `numba.core.compiler_machinery.AnalysisPass`, and uses
`register_pass`, `DefaultPassBuilder.define_nopython_pipeline`, the name of `NopythonTypeInference` among its passes, and
`type_inference_stage`.
"""

from typing import Any

from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NopythonTypeInference, type_inference_stage


def inferring_first(signature: Any) -> type:
    """Return a compiler (`pipeline_class` of njit) that infers a function's types for this signature before those for its own.

    The compiled code is the same, and compiling raises if the function has no types for this signature. This refuses a function
    that writes on arrays which some of its callers have closed to writing. No machine code is made for such a function. To
    compile the function a second time would tell the same, and would take as long as the first time.
    """

    # numba keeps registered passes, and refuses two of one name: so this must be asked once for each signature.
    @register_pass(mutates_CFG=False, analysis_only=True)
    class InferForSignature(AnalysisPass):
        _name = f"infer_for_{signature}"

        def __init__(self) -> None:  # which is abstract in numba's class
            AnalysisPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            """Infer the types, and forget them."""
            type_inference_stage(state.typingctx, state.targetctx, state.func_ir, signature.args, None)
            return False  # nothing was changed

    class InferringFirst(CompilerBase):
        """numba's compiler with that pass before its own inference of types."""

        def define_pipelines(self) -> list[Any]:
            """Return the one pipeline."""
            # numba can add a pass after one that is named, and not before: so it is added after the one that comes before.
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            names = [one for one, _ in passes.passes]
            passes.add_pass_after(InferForSignature, names[names.index(NopythonTypeInference) - 1])
            passes.finalize()
            return [passes]

    return InferringFirst
