r"""The command line ``python -m botorch_bkb``: a demo, and commands on journals."""

from __future__ import annotations

import argparse

from botorch_bkb.commands import demo, journals


def main() -> None:
    r"""Run the command named on the command line, or the demo if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m botorch_bkb",
        description="Without a command, run the demo: BBKB on a large table of arms and on a box, "
        "compared with exact GP-UCB.",
    )
    demo.add_to(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo.add_to(commands.add_parser("demo", help="run the demo, as without a command"))
    journals.add_to(commands)
    options = parser.parse_args()
    journals.checked(options.run, options)


if __name__ == "__main__":
    main()
