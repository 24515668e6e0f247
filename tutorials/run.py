r"""Run the tutorials and write their outputs, or only test them with ``--smoke``.

This script needs nbclient and ipykernel: ``pip install -e '.[tutorials]'``.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def execute(path: Path, smoke: bool) -> None:
    r"""Run a notebook from top to bottom, and raise any error in a cell.

    Args:
        path: Path of the notebook.
        smoke: Whether to run the notebook with the smallest sizes and leave the file unchanged.
            Otherwise the outputs are written into the file.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    environment.pop("SMOKE_TEST", None)
    if smoke:
        environment["SMOKE_TEST"] = "1"
    client = NotebookClient(notebook, timeout=1800, kernel_name="python3")
    client.execute(env=environment, cwd=str(FOLDER))
    if not smoke:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # the time at which each cell ran
        nbformat.write(notebook, path)


def main() -> None:
    r"""Run all notebooks, or those named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="prefixes of notebook names; default: all")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes, outputs not written")
    args = parser.parse_args()
    for path in sorted(FOLDER.glob("*.ipynb")):
        if args.names and not path.name.startswith(tuple(args.names)):
            continue
        start = time.perf_counter()
        execute(path, args.smoke)
        print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
