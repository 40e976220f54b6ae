"""`python -m grpo_theory` is the installed command, `grpo-theory`."""

import sys

from grpo_theory.page.command import main

if __name__ == "__main__":
    sys.exit(main())
