from __future__ import annotations

import sys
from pathlib import Path

import pandas
import pytest
import torch

from botorch_bkb import __main__ as command
from botorch_bkb import run
from tests.runs.support import bbkb, value


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["botorch_bkb", *map(str, words)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        command.main()
        return capsys.readouterr().out

    return call


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "run.sqlite"
    run(bbkb(), value, 30, journal=path)
    return path


def test_show(call, journal, tmp_path):
    out = call("show", journal, "--rows", 3, "--plot", tmp_path / "run.png")
    lines = out.splitlines()
    assert lines[0].startswith("BBKB(arms=<40 x 1>, covar_module=RBFKernel(")
    assert "30 of 30: 30 done, 0 failed, 0 skipped, 0 pending" in lines[1]
    assert lines[2].startswith("best") and "recommend" in out
    assert lines[-2].split()[:3] == ["29", lines[-2].split()[1], "done"]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_show_a_run_with_failures_and_arguments_unknown(call, tmp_path):
    path = tmp_path / "run.sqlite"
    optimizer = bbkb(width=lambda progress: 2.0)
    run(optimizer, lambda X: torch.where(X[:, 0] > 2, torch.nan, value(X)), 20, journal=path)
    out = call("show", path)
    assert "width=function" in out and "failed" in out and "recommend" not in out


def test_export(call, journal, tmp_path):
    call("export", journal, tmp_path / "run.csv")
    table = pandas.read_csv(tmp_path / "run.csv")
    assert len(table) == 30 and set(table["status"]) == {"done"}


def test_resume(call, journal):
    assert "35 of 35" in call("resume", journal, "tests.runs.support:value", "--budget", 35)
    words = ("resume", journal, "tests.runs.support:one", "--budget", 38, "--workers", 2)
    assert "38 of 38" in call(*words)


def test_resume_with_a_script_that_begins_the_run(call, journal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["from tests.runs.support import bbkb, value", "from botorch_bkb import run"]
    lines.append(f"run(bbkb(), value, 30, journal={str(journal)!r})")
    Path("begins_a_run.py").write_text("\n".join(lines))
    with pytest.raises(SystemExit, match=r"Importing begins_a_run.py begins a run .*__main__"):
        call("resume", journal, "begins_a_run.py:value")


def test_recover(call, journal, tmp_path):
    data = journal.read_bytes()
    journal.write_bytes(data[:4096] + b"\x00" * 4096 + data[8192:])
    with pytest.raises(SystemExit, match="damaged"):
        call("show", journal)
    out = call("recover", journal, tmp_path / "new.sqlite")
    assert "30 complete records" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nothing.sqlite"), "There is no journal nothing.sqlite"),
        (("resume", "JOURNAL", "support"), "module:function"),
        (("resume", "JOURNAL", "tests.runs.support:no"), "has no function no"),
        (("resume", "JOURNAL", "nowhere:value"), "nowhere"),
        (("show", "JOURNAL", "--plot", "run.xyz"), "xyz"),
        (("recover", "JOURNAL", "JOURNAL"), "exists"),
    ],
)
def test_errors_are_a_line(call, journal, words, message):
    with pytest.raises(SystemExit, match=message):
        call(*(journal if word == "JOURNAL" else word for word in words))


def test_help_names_the_commands(call, capsys):
    with pytest.raises(SystemExit):
        call("--help")
    out = capsys.readouterr().out
    assert all(name in out for name in ("show", "export", "resume", "recover"))
