"""Command line of the figures; what draws them is imported within, because that takes seconds in which one may interrupt it."""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        if not {"-h", "--help"} & set(sys.argv[1:] if arguments is None else arguments):
            print("reading the figures, which takes some seconds", flush=True)
        from paper_figures.harness import command  # here, because an interrupt during the import is one too

        return command.obey(command.parser().parse_args(arguments))
    except KeyboardInterrupt:
        print("interrupted: what was drawn is kept, run the same command to draw it all", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
