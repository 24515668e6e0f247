r"""Draw a picture to a file, without a display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def picture(path: Path) -> Iterator[Any]:
    r"""Yield three axes side by side, and save them to a file at the end of the block."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib: pip install 'botorch-bkb[plotting]'"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
    yield axes
    for ax in axes:
        ax.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=100)
    except ValueError as error:  # matplotlib derives the format from the file name
        raise OSError(
            f"{path} cannot be drawn ({error}): give a file name such as run.png"
        ) from error
    finally:
        plt.close(figure)
    print(f"picture    {path.resolve()}")
