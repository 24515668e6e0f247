r"""``python -m benchmarks`` lists the studies, ``python -m benchmarks NAME`` runs one."""

from __future__ import annotations

import argparse
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.report import Options, Report

STUDIES = (
    "variance", "bbkb", "adabkb", "compressed", "scaling", "trade-off", "realistic",
    "model", "arms", "continuous", "service",
)  # fmt: skip


def study(name: str) -> ModuleType:
    r"""The module of a study."""
    return import_module(f"benchmarks.studies.{name.replace('-', '_')}")


def listing() -> str:
    r"""A line a study."""
    lines = (f"  {name:12} {study(name).__doc__.splitlines()[0]}" for name in STUDIES)
    return "\n".join(["studies:", *lines, "", "python -m benchmarks NAME --help has the options"])


def main(argv: list[str] | None = None) -> None:
    r"""List the studies, or run one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=STUDIES, help="a study; without it, a list")
    parser.add_argument("--quick", action="store_true", help="everything, as short as can be")
    parser.add_argument("--data", type=Path, help="folder with abalone.csv and cal_housing.data")
    parser.add_argument("--out", type=Path, help="folder for the figures and pictures")
    parser.add_argument("--seeds", type=int, help="repetitions; by default the study's own")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--cache", type=Path, help="folder from which an interrupted one goes on")
    args = parser.parse_args(argv)
    if args.name is None:
        return print(listing())
    module = study(args.name)
    seeds = args.seeds or (min(2, module.SEEDS) if args.quick else module.SEEDS)
    options = Options(args.quick, seeds, args.workers, args.data, args.out, args.cache)
    warnings.simplefilter("ignore")
    try:
        report = Report(args.name, module.COLUMNS, options)
        module.run(options, report)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"This study needs {error.name}: pip install -c constraints.txt -e '.[benchmarks]'"
        ) from error
    report.finish()


if __name__ == "__main__":
    main()
