r"""The README's Python runs as it stands, and it has its two set-up lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


def test_there_are_two_set_up_lines():
    lines = [line for block in blocks("bash") for line in block.strip().splitlines()]
    assert len(lines) == 2
    assert lines[0].endswith("-m botorch_bkb") and "pytest" in lines[1]
