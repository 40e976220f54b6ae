"""Old import path, for branches that are merged later; tools of the merge rewrite their imports, and then this file goes."""

from grpo_theory.compiler.dependencies import CodeDependencies as Reliances  # noqa: F401
from grpo_theory.compiler.dependencies import code_checksum as code_checksum
from grpo_theory.compiler.dependencies import code_dependencies as reliances  # noqa: F401
