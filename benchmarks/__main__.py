r"""``python -m benchmarks`` lists the studies. ``python -m benchmarks NAME`` runs one."""

from __future__ import annotations

import argparse
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.report import Options, Report

STUDIES = (
    "variance", "bbkb", "adabkb", "compressed", "scaling", "trade-off", "realistic",
    "model", "arms", "continuous", "service", "theorems", "widths", "few-batches", "drift",
    "caps", "fits", "search", "workers",
)  # fmt: skip


def study(name: str) -> ModuleType:
    r"""Import and return the module of a study."""
    return import_module(f"benchmarks.studies.{name.replace('-', '_')}")


def listing() -> str:
    r"""Return the list of studies, one line per study."""
    lines = (f"  {name:12} {study(name).__doc__.splitlines()[0]}" for name in STUDIES)
    return "\n".join(["studies:", *lines, "", "python -m benchmarks --help shows the options"])


def main(argv: list[str] | None = None) -> None:
    r"""List the studies, or run one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=STUDIES, help="study to run; omit to list all")
    parser.add_argument("--quick", action="store_true", help="run every part at the smallest size")
    parser.add_argument("--data", type=Path, help="folder with abalone.csv and cal_housing.data")
    parser.add_argument("--out", type=Path, help="folder for the CSV file and the plots")
    parser.add_argument("--seeds", type=int, help="number of seeds; each study has a default")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--cache", type=Path, help="folder of finished runs, to resume a study")
    parser.add_argument("--half", choices=("choose", "report"), help="half of the study `search`")
    parser.add_argument("--only", nargs="+", help="methods of the study `search`; others are left")
    args = parser.parse_args(argv)
    if args.name is None:
        return print(listing())
    module = study(args.name)
    if (args.half or args.only) and args.name != "search":
        parser.error(f"--half and --only are for the study search, got {args.name}")
    seeds = args.seeds or (min(2, module.SEEDS) if args.quick else module.SEEDS)
    folders = (args.data, args.out, args.cache)
    only = tuple(args.only or ())
    options = Options(args.quick, seeds, args.workers, *folders, half=args.half, only=only)
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
