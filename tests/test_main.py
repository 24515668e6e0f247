from __future__ import annotations

import sys

import pytest
import torch

from botorch_bkb import __main__ as command
from botorch_bkb.commands.demo import extrapolated


def test_demo_prints_a_table_and_draws_a_picture(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "demo.png"
    sizes = ["--arms", "500", "--pulls", "200", "--evaluations", "16"]
    monkeypatch.setattr(sys, "argv", ["botorch_bkb", *sizes, "--picture", str(picture)])
    command.main()
    lines = capsys.readouterr().out.splitlines()
    rows = {
        line[:22].strip(): line[22:].split() for line in lines if line.startswith(("BBKB", "ex"))
    }
    assert set(rows) == {"BBKB, table", "exact GP-UCB, table", "BBKB, Hartmann6"}
    pulls, regret, first, random, m, batches, seconds = rows["BBKB, table"]
    assert pulls == "200" and float(seconds) > 0
    assert float(regret) < float(first) < float(random)
    assert rows["exact GP-UCB, table"][3] == random != rows["BBKB, Hartmann6"][3]
    assert 1 <= int(m) <= 200 and 1 < int(batches) < 200
    pytest.importorskip("matplotlib")
    assert picture.exists()


def test_what_grows_linearly_is_extrapolated_exactly():
    t = torch.arange(1, 101, dtype=torch.float64)
    cost = 2 + 3 * t
    whole = (2 + 3 * torch.arange(1, 1001, dtype=torch.float64)).sum()
    assert extrapolated(cost.cumsum(0), 1000) == pytest.approx(float(whole))


def test_help_lists_the_options_and_the_commands(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["botorch_bkb", "--help"])
    with pytest.raises(SystemExit):
        command.main()
    said = capsys.readouterr().out
    for word in ("--arms", "--pulls", "--picture", "demo", "show", "export", "resume", "recover"):
        assert word in said
