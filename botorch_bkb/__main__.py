r"""``python -m botorch_bkb``: the demo, and commands on journals."""

from __future__ import annotations

import argparse

from botorch_bkb.commands import demo, journals


def main() -> None:
    r"""Run a command; the demo if none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m botorch_bkb",
        description="Without a command, the demo: BBKB over a large table of arms and over a box, "
        "next to exact GP-UCB.",
    )
    demo.add_to(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo.add_to(commands.add_parser("demo", help="the demo, as without a command"))
    journals.add_to(commands)
    options = parser.parse_args()
    journals.checked(options.run, options)


if __name__ == "__main__":
    main()
