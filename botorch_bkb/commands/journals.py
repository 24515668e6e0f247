r"""The commands on journals: show, export, resume and recover."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import BotorchError

from botorch_bkb.commands.picture import picture
from botorch_bkb.journal import Journal, JournalError, recover
from botorch_bkb.runs import resume
from botorch_bkb.runs.export import read_journal, table_of
from botorch_bkb.runs.record import RunRecord, read_record
from botorch_bkb.runs.result import Table, write_csv
from botorch_bkb.runs.settings import arguments, constructed


def add_to(commands: Any) -> None:
    r"""Add the commands on journals to the subparsers of a parser."""
    show = commands.add_parser("show", help="summarise a journal")
    show.add_argument("journal", type=Path)
    show.add_argument("--rows", type=int, default=10, help="number of last points to print (10)")
    show.add_argument("--plot", type=Path, metavar="PNG", help="also draw the run to a file")
    show.set_defaults(run=_show)
    export = commands.add_parser("export", help="convert a journal to CSV, one row per point")
    export.add_argument("journal", type=Path)
    export.add_argument("csv", type=Path)
    export.set_defaults(run=_export)
    again = commands.add_parser("resume", help="continue a run")
    again.add_argument("journal", type=Path)
    again.add_argument("objective", metavar="module:function")
    again.add_argument("--budget", type=int, help="a new budget for the whole run")
    again.add_argument(
        "--workers",
        type=int,
        help="evaluate single points on this many processes; by default whole batches in one call",
    )
    again.set_defaults(run=_resume)
    rescue = commands.add_parser(
        "recover", help="recover the complete records of a damaged journal"
    )
    rescue.add_argument("journal", type=Path)
    rescue.add_argument("new", type=Path)
    rescue.set_defaults(run=_recover)


def checked(command: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    r"""Run a command, and exit with one line instead of a traceback if it fails."""
    try:
        command(options)
    except (BotorchError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")


def _export(options: argparse.Namespace) -> None:
    table = read_journal(options.journal)
    write_csv(options.csv, table)
    print(f"{len(table['t'])} points written to {options.csv}")


def _recover(options: argparse.Namespace) -> None:
    for table, count in recover(options.journal, options.new).items():
        print(f"{table:<14}{count:>10,} complete records")
    print(f"written to {options.new}")


def _resume(options: argparse.Namespace) -> None:
    sys.path.insert(0, str(Path.cwd()))
    module, _, name = options.objective.partition(":")
    if not name:
        raise JournalError(
            f"The objective must be given as module:function, got {options.objective!r}: give for "
            "example my_script:objective."
        )
    try:
        found = importlib.import_module(module.removesuffix(".py"))
    except JournalError as error:
        raise JournalError(
            f"Importing {module} begins a run ({error}): move the run under "
            "if __name__ == '__main__':"
        ) from error
    objective = getattr(found, name, None)
    if not callable(objective):
        raise JournalError(f"{module} has no function {name}: give the name of a function in it.")
    executor = partial(ProcessPoolExecutor, options.workers) if options.workers else None
    resume(options.journal, objective, budget=options.budget, executor=executor)
    _show(argparse.Namespace(journal=options.journal, rows=0, plot=None))


def _show(options: argparse.Namespace) -> None:
    with Journal.read(options.journal) as journal:
        settings, record = journal.settings, read_record(journal, journal.events())
        lines = summary(settings, record)
        lines += recommendation(journal, settings)
    print(*lines, sep="\n")
    table = table_of(record)
    if options.rows > 0 and table["t"]:
        print("", *last_rows(table, options.rows), sep="\n")
    if options.plot:
        draw(table, options.plot)


def summary(settings: dict[str, Any], record: RunRecord) -> list[str]:
    r"""Return lines with the optimizer, the progress and the best reward of a run."""
    optimizer, run = settings.get("optimizer", {}), settings.get("run", {})
    given = ", ".join(f"{name}={_short(value)}" for name, value in arguments(optimizer).items())
    outcomes = record.outcomes.values()
    done = [outcome for outcome in outcomes if outcome.reward is not None]
    skipped = sum(point.id == -1 for point in record.points.values())
    lines = [
        f"{optimizer.get('algorithm', 'unknown optimizer')}({given})",
        f"points     {len(record.points):,} of {run.get('budget', '?')}: {len(done):,} done, "
        f"{len(record.outcomes) - len(done):,} failed, {skipped:,} skipped, "
        f"{len(record.open):,} pending",
    ]
    if done:
        best = max(done, key=lambda outcome: outcome.reward or 0)
        x = ", ".join(f"{v:.4g}" for v in record.points[best.suggestion].x.tolist()[:8])
        lines.append(f"best       reward {best.reward:.6g} at point {best.suggestion}: ({x})")
    if record.measurements:
        last = record.measurements[max(record.measurements)]
        lines.append(
            f"belief     dictionary {last.dictionary:,}, effective dimension "
            f"{last.dimension:.1f}, width {last.width:.3g}"
        )
    asking, telling, waiting = (
        sum(getattr(m, name) for m in record.measurements.values())
        for name in ("asking", "telling", "waiting")
    )
    lines.append(f"seconds    asking {asking:.1f}, telling {telling:.1f}, waiting {waiting:.1f}")
    return lines


def recommendation(journal: Journal, settings: dict[str, Any]) -> list[str]:
    r"""Return a line with the recommended point at the last snapshot.

    There is no line if the optimizer cannot be constructed from the journal.
    """
    with suppress(BotorchError, KeyError):
        optimizer = constructed(settings["optimizer"])
        for _, state in journal.snapshots():
            optimizer.load_state_dict(state)
            best = optimizer.best()
            x = ", ".join(f"{v:.4g}" for v in best.X.tolist()[:8])
            return [
                f"recommend  ({x}): mean {best.mean:.6g}, between {best.lower:.6g} and "
                f"{best.upper:.6g}, after {optimizer.num_observations:,} results"
            ]
    return []


def last_rows(table: Table, n: int) -> list[str]:
    r"""Return lines with the last ``n`` rows of the most important columns."""
    names = ["t", "batch", "status", "reward", "seconds", "dictionary", "error"]
    names = [name for name in names if any(v is not None for v in table[name])]
    rows = [[_short(table[name][i]) for name in names] for i in range(len(table["t"]))[-n:]]
    widths = [max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(names)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in [names, *rows]
    ]


def _short(value: Any) -> str:
    r"""Format a value in at most 60 characters, and a tensor as its shape."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    if hasattr(value, "shape"):
        return f"<{' x '.join(map(str, value.shape))}>"
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def draw(table: Table, path: Path) -> None:
    r"""Draw rewards, dictionary and batches against the number of points."""
    with picture(path) as axes:
        from botorch_bkb.plotting import plot_batches, plot_dictionary, plot_rewards

        done = [i for i, status in enumerate(table["status"]) if status == "done"]
        history = {name: [column[i] for i in done] for name, column in table.items()}
        for plot, ax in zip((plot_rewards, plot_dictionary, plot_batches), axes, strict=True):
            plot(history, ax)
