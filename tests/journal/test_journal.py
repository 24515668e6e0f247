from __future__ import annotations

import multiprocessing
import os
import resource
import sqlite3

import pytest
import torch

from botorch_bkb.journal import Asked, Journal, JournalError, Measurement, Outcome, recover
from botorch_bkb.journal.schema import PAGE_SIZE

SETTINGS = {"budget": 7, "dtype": "float64", "arms": torch.rand(3, 2)}


def asked(number, d=2):
    x = torch.full((d,), float(number), dtype=torch.float64)
    return Asked(number, x.numpy().tobytes(), None, number, 0)


def outcome(number, reward=None):
    return Outcome(number, float(number) if reward is None else reward, None, None, 1, 0.5, 1.0)


def fill(journal, start, stop, d=2):
    for number in range(start, stop):
        journal.ask(1, [asked(number, d)])
        journal.outcomes([outcome(number)], told=[number])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


def test_everything_written_is_read(path):
    with Journal.create(path, SETTINGS) as journal:
        journal.ask(None, [asked(0), asked(1)])
        journal.outcomes([outcome(1, 2.0)])
        journal.attempt_failed(0, "no luck")
        journal.outcomes([Outcome(0, None, None, "ValueError: no", 2, 0.1, 2.0)], told=[0, 1])
        journal.measured(Measurement(2, 5, 1.5, 2.0, 0.1, 0.2, 0.3))
        journal.ask(3, [])
        journal.snapshot({"state": torch.arange(3)})
        journal.set("budget", 9)
    with Journal.read(path) as journal:
        journal.check()
        assert journal.settings["budget"] == 9
        assert torch.equal(journal.settings["arms"], SETTINGS["arms"])
        kinds = [(e.kind, e.requested, e.members) for e in journal.events()]
        assert kinds == [("ask", None, (0, 1)), ("tell", None, (0, 1)), ("ask", 3, ())]
        assert [o.reward for o in journal.outcome_list()] == [None, 2.0]
        assert journal.suggestion_list() == [asked(0), asked(1)]
        assert journal.measurement_list()[0].dictionary == 5
        assert journal.rows("attempts")[0][1:3] == (0, "no luck")
        event, state = next(journal.snapshots())
        assert event == 3 and torch.equal(state["state"], torch.arange(3))


def test_only_the_first_and_the_last_snapshot_are_kept(path):
    with Journal.create(path, {}) as journal:
        for i in range(5):
            journal.snapshot({"i": i})
            journal.ask(1, [asked(i)])
        rows = journal.rows("snapshots")
        assert [event for event, _ in rows] == [0, 4]
        assert next(journal.snapshots()) == (4, {"i": 4})


def test_a_file_that_exists_is_not_overwritten(path):
    Journal.create(path, {}).close()
    with pytest.raises(JournalError, match=r"exists\. Choose another name, or continue"):
        Journal.create(path, {})
    with Journal.append(path) as journal:
        fill(journal, 0, 2)


def test_a_file_left_by_a_kill_during_creation_does_not_stand_in_the_way(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    Journal.create(path, {}).close()


def test_an_outcome_cannot_be_written_twice(path):
    with Journal.create(path, {}) as journal:
        journal.ask(1, [asked(0)])
        journal.outcomes([outcome(0)])
        with pytest.raises(JournalError):
            journal.outcomes([outcome(0, 5.0)], told=[0])
        assert journal.last_event == 1
        assert journal.outcome_list() == [outcome(0)]


def _try_to_append(path, queue):
    try:
        Journal.append(path).close()
        queue.put("opened")
    except JournalError as error:
        queue.put(str(error))


def test_the_second_process_gets_a_clear_error_and_readers_none(path):
    context, journal = multiprocessing.get_context("fork"), Journal.create(path, {})
    queue = context.Queue()

    def other():
        process = context.Process(target=_try_to_append, args=(path, queue))
        process.start()
        process.join()
        return queue.get()

    fill(journal, 0, 3)
    assert "in use" in other()
    with Journal.read(path) as reader:
        assert len(reader.outcome_list()) == 3
        fill(journal, 3, 5)
        assert len(reader.outcome_list()) == 5
    with pytest.raises(JournalError, match="in use"):
        Journal.append(path)
    journal.close()
    assert other() == "opened"


@pytest.mark.parametrize("opening", [Journal.append, Journal.read, lambda p: recover(p, "x")])
def test_no_file(path, opening):
    with pytest.raises(JournalError, match="There is no"):
        opening(path)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"x" * 5000])
def test_something_else_than_a_journal(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"run\.sqlite"):
        Journal.append(path)


def test_a_newer_version(path):
    Journal.create(path, {}).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(JournalError, match="version 99"):
        Journal.read(path)


def _create_as_nobody(path, queue):
    if os.geteuid() == 0:  # nothing is read-only for root
        os.seteuid(65534)
    try:
        Journal.create(path, {}).close()
        queue.put("created")
    except JournalError as error:
        queue.put(str(error))


def test_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o555)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_create_as_nobody, args=(tmp_path / "run.sqlite", queue))
    process.start()
    said = queue.get(timeout=60)
    process.join()
    assert "run.sqlite" in said and "must be writable" in said


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(JournalError, match="must exist"):
        Journal.create(tmp_path / "no" / "run.sqlite", {})


def test_a_full_disk_loses_nothing_that_was_acknowledged(path):
    journal = Journal.create(path, {})
    fill(journal, 0, 5)
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    for done in range(5, 10**6):
        try:
            fill(journal, done, done + 1, d=200)
        except JournalError as error:
            said = str(error)
            break
    assert "full; everything before is written" in said
    journal.close()
    with Journal.append(path) as journal:
        journal.check()
        assert len(journal.outcome_list()) == done
        assert [e.event for e in journal.events()] == list(range(1, journal.last_event + 1))


def _write_until_the_limit(path, queue):
    with Journal.create(path, {}) as journal:
        fill(journal, 0, 5)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50 * PAGE_SIZE, resource.RLIM_INFINITY))
        done = 5
        try:
            while True:
                fill(journal, done, done + 1, d=100)
                done += 1
        except JournalError as error:
            queue.put((done, str(error)))


def test_a_disk_that_refuses(path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_write_until_the_limit, args=(path, queue))
    process.start()
    done, said = queue.get(timeout=60)
    process.join()
    assert "run.sqlite" in said and "written" in said
    with Journal.append(path) as journal:
        assert len(journal.outcome_list()) == done


# ---------------------------------------------------------------------- damage


def journal_with(path, n, d=2):
    with Journal.create(path, SETTINGS) as journal:
        journal.snapshot({"state": torch.arange(500)})
        fill(journal, 0, n, d)
    return path.read_bytes()


def salvaged(path, new):
    found = recover(path, new)
    with Journal.read(new) as journal:
        journal.check()
        return found, {o.suggestion: o for o in journal.outcome_list()}, journal.suggestion_list()


def test_recovering_a_whole_file_gives_all_of_it(path, tmp_path):
    journal_with(path, 300)
    found, outcomes, suggestions = salvaged(path, tmp_path / "new.sqlite")
    assert outcomes == {n: outcome(n) for n in range(300)}
    assert suggestions == [asked(n) for n in range(300)]
    assert found["events"] == 600 and found["snapshots"] == 1


def test_recovering_what_is_still_in_the_log(path, tmp_path):
    journal = Journal.create(path, SETTINGS)
    fill(journal, 0, 40)
    _, outcomes, _ = salvaged(path, tmp_path / "new.sqlite")
    assert len(outcomes) == 40
    journal.close()


def test_recovering_records_larger_than_a_page(path, tmp_path):
    journal_with(path, 6, d=2000)
    _, _, suggestions = salvaged(path, tmp_path / "new.sqlite")
    assert suggestions == [asked(n, 2000) for n in range(6)]


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_file(path, tmp_path, kept):
    data = journal_with(path, 300)
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(JournalError, match=r"run\.sqlite is damaged"), Journal.append(path) as j:
        j.check()
    _, outcomes, _ = salvaged(path, tmp_path / "new.sqlite")
    assert all(outcomes[n] == outcome(n) for n in outcomes)


def test_a_lost_page_costs_no_record_on_another(path, tmp_path):
    data = journal_with(path, 300)
    for page in range(len(data) // PAGE_SIZE):
        place = page * PAGE_SIZE
        there = [n for n in range(300) if asked(n).point in data[place : place + PAGE_SIZE]]
        path.write_bytes(data[:place] + b"\x00" * PAGE_SIZE + data[place + PAGE_SIZE :])
        new = tmp_path / f"new{page}.sqlite"
        _, _, suggestions = salvaged(path, new)
        assert {a.suggestion for a in suggestions} >= set(range(300)) - set(there)


#: Rows of a journal of sixty outcomes.
COUNTS = {"settings": 3, "events": 120, "suggestions": 60, "outcomes": 60, "measurements": 0}


def test_a_flipped_bit_is_never_taken_for_a_result(path, tmp_path):
    data = journal_with(path, 60)
    generator = torch.Generator().manual_seed(0)
    expected, noticed = [outcome(n) for n in range(60)], 0
    for trial in range(300):
        place = int(torch.randint(len(data), (), generator=generator))
        bit = 1 << int(torch.randint(8, (), generator=generator))
        path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        try:
            with Journal.append(path) as journal:
                journal.check()
                assert [len(journal.rows(table)) for table in COUNTS] == list(COUNTS.values())
                assert journal.outcome_list() == expected
        except JournalError:
            noticed += 1
        _, outcomes, _ = salvaged(path, tmp_path / f"new{trial}.sqlite")
        assert all(outcomes[n] == expected[n] for n in outcomes)
    assert noticed > 20
