from __future__ import annotations

import sys

import pytest

from botorch_bkb import __main__ as command


def test_demo_prints_a_table(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["botorch_bkb", "--points", "1000", "--noise", "0.5"])
    command.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["n", "m", "fit", "s", "predict", "ms", "RMSE"]
    sparse, exact = (line.split() for line in lines[2:4])
    assert sparse[0] == "DTCGP" and exact[0] == "SingleTaskGP"
    assert float(sparse[-1]) < 0.5 and float(exact[-1]) < 0.5


def test_help_lists_the_options(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["botorch_bkb", "--help"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--points" in capsys.readouterr().out
