"""The record outlives a loss of power with the checkpoint that counts it, and no damage to it goes unsaid."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.checkpoint.reading import check_checkpoint
from lockstep.config_error import ConfigError
from lockstep.job import write_config
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.record.file import RecordOffset, lines_so_far, missing_steps
from tests.conftest import Command, MakePlan
from tests.rank_helpers import ENGINES

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
SMALL = ("data=points", "model.hidden=[4]", "logger=none", "accelerator=cpu", "test=false", "batch_size=2", "threads=1")
pytestmark = [
    pytest.mark.usefixtures("process_as_it_was"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_record_is_on_the_disk_before_the_checkpoint_that_counts_it(
    engine: str, make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each renaming to last.ckpt all of record.jsonl's bytes have been synced, and the checkpoint's own."""
    sync, rename = os.fsync, os.replace
    synced: dict[int, int] = {}  # bytes by inode, since files are synced under another name
    seen: list[tuple[int, int]] = []
    record = tmp_path / "record.jsonl"

    def logging_sync(descriptor: int) -> None:
        sync(descriptor)
        state = os.fstat(descriptor)
        synced[state.st_ino] = state.st_size

    def logging_rename(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == "last.ckpt":
            assert synced.get(Path(source).stat().st_ino) == Path(source).stat().st_size
            seen.append((record.stat().st_size, synced.get(record.stat().st_ino, -1)))
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", logging_sync)
    monkeypatch.setattr(os, "replace", logging_rename)
    ENGINES[engine](make_plan(*SMALL, "max_epochs=2", "checkpoint.every_n_steps=2"), ALONE)
    assert len(seen) == 4, "after steps 2 and 4, and after each epoch of 3 steps"
    assert all(size == on_disk for size, on_disk in seen)
    assert len({size for size, _ in seen}) == 4, "the record had grown each time"


@pytest.fixture
def trained(make_plan: MakePlan, tmp_path: Path) -> Plan:
    """A plan of two epochs, as `resume=true` goes on with it after the first."""
    folder = tmp_path / "run"
    folder.mkdir()
    plan = replace(make_plan(*SMALL, "max_epochs=1", "data.samples=9"), run_dir=str(folder))
    ENGINES["raw"](plan, ALONE)
    last = folder / "checkpoints" / "last.ckpt"
    return replace(plan, max_epochs=2, ckpt_path=str(last), resume=True)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "record.jsonl").read_bytes().splitlines(keepends=True)


def lost(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-900])


def half_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:800])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def garbage_behind_the_first_line(path: Path) -> None:
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\xff\xfe" * (len(b"".join(rest)) // 2 + 1))


def edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"samples": 2', b'"samples": 3', 1))


def reordered(path: Path) -> None:
    first, second, third, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, third, second, *rest]))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [
    (lost, "cannot be read"),
    (cut, "whole lines of the 7"),
    (half_a_line, "has 3 whole lines of the 7"),
    (emptied, "has no first line"),
    (garbage, "is not what it was when"),
    (garbage_behind_the_first_line, "is not what it was when"),
    (edited, "is not what it was when"),
    (reordered, "is not what it was when"),
    (a_folder, "cannot be read"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_damaged_record(
    damage: Callable[[Path], None], reason: str, trained: Plan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In its own folder the run is refused; beside it training goes on, and the new record says what it lacks."""
    folder = Path(trained.run_dir)
    damage(folder / "record.jsonl")
    for refuses in (lambda: check_checkpoint(trained), lambda: ENGINES["raw"](trained, ALONE)):
        with pytest.raises(ConfigError) as raised:
            refuses()
        assert "\n" not in str(raised.value)
        assert "/run: its record.jsonl " in str(raised.value)
        assert reason in str(raised.value)
        assert f"write ckpt_path={trained.ckpt_path} without resume and hydra.run.dir" in str(raised.value)
    (tmp_path / "beside").mkdir()
    beside = replace(trained, run_dir=str(tmp_path / "beside"), resume=False)
    check_checkpoint(beside)
    assert ENGINES["raw"](beside, ALONE)["steps"] == 10
    word = capfd.readouterr().err
    assert f"{folder / 'record.jsonl'} " in word
    assert word.count("the new record begins where training resumes") == 1
    first, second, *_ = map(json.loads, lines_of(tmp_path / "beside"))
    assert (first["run"]["missing_steps"], second["step"]["step"]) == (5, 6)


@pytest.mark.parametrize("through", ["run", "folder", "file"])
def test_through_a_link_it_is_the_same_record(through: str, trained: Plan, tmp_path: Path) -> None:
    """The record is gone on with, not removed; where it is damaged, the run is refused."""
    folder = Path(trained.run_dir)
    before = lines_of(folder)
    link = tmp_path / "link"
    links = {
        "run": (folder, link / "checkpoints" / "last.ckpt"),
        "folder": (folder / "checkpoints", link / "last.ckpt"),
        "file": (folder / "checkpoints" / "last.ckpt", link),
    }
    leads, ckpt_path = links[through]
    link.symlink_to(leads)
    plan = replace(trained, ckpt_path=str(ckpt_path), resume=False)
    write_config(plan)
    ENGINES["raw"](plan, ALONE)
    assert lines_of(folder)[1:7] == before[1:7]
    (tmp_path / "other").symlink_to(folder)
    garbage(folder / "record.jsonl")
    with pytest.raises(ConfigError, match=r"record.jsonl is not what it was|record.jsonl has no first line"):
        lines_so_far(ckpt_path, tmp_path / "other", RecordOffset(7, 900, "0"))


def test_an_incomplete_record_stays_one(trained: Plan, tmp_path: Path) -> None:
    """Also when the run that began without its first lines is itself gone on with."""
    lost(Path(trained.run_dir) / "record.jsonl")
    (tmp_path / "beside").mkdir()
    beside = replace(trained, run_dir=str(tmp_path / "beside"), resume=False)
    ENGINES["raw"](beside, ALONE)
    last = tmp_path / "beside" / "checkpoints" / "last.ckpt"
    ENGINES["raw"](replace(beside, ckpt_path=str(last), resume=True, max_epochs=3), ALONE)
    first, second, *_ = map(json.loads, lines_of(tmp_path / "beside"))
    assert (first["run"]["missing_steps"], second["step"]["step"]) == (5, 6)


def test_lines_behind_the_checkpoint_are_cut(trained: Plan, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(trained.run_dir)
    before = lines_of(folder)
    with (folder / "record.jsonl").open("ab") as record:
        record.write(b'{"step": {"epoch": 2, "st')
    ENGINES["raw"](trained, ALONE)
    after = lines_of(folder)
    assert after[1:7] == before[1:7]
    assert [json.loads(line)["step"]["step"] for line in after if b'{"step"' in line] == [*range(1, 11)]
    assert capfd.readouterr().err == ""


def test_what_is_missing_is_counted_from_the_first_line_of_a_step() -> None:
    assert missing_steps(b'{"step": {"epoch": 1, "step": 1}}\n', 1) == 0
    assert missing_steps(b'{"step": {"epoch": 2, "step": 8}}\n{"step": {"step": 9}}\n', 9) == 7
    assert missing_steps(b"", 9) == 9


def test_on_the_command_line(trained: Plan, command: Command) -> None:
    """Refused before anything is touched; what the sentence says to write works."""
    own = ("engine=raw", "data.samples=9", "max_epochs=2", *SMALL)
    folder = Path(trained.run_dir)
    garbage(folder / "record.jsonl")
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    ended = command.train(*own, f"hydra.run.dir={folder}", "resume=true")
    assert (ended.status, len(ended.err.splitlines())) == (2, 1), ended.err
    assert f"hydra.run.dir={folder}: its record.jsonl is not what it was" in ended.err
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    ended = command.train(*own, f"ckpt_path={trained.ckpt_path}")
    assert ended.status == 0, ended.err
    assert ended.err.count("the new record begins where training resumes") == 1
