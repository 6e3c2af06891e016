"""The record survives a loss of power with the checkpoint that counts it, and damage to it is reported."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.command.job import write_config
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.reading import check_checkpoint
from lockstep.runs.record import earlier_lines
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE, ENGINES

SMALL = (
    *("data=points", "model.net.hidden=[4]", "logger=none", "accelerator=cpu", "test=false", "batch_size=2"),
    "threads=1",
)
pytestmark = IN_PROCESS


def test_record_is_synced_before_the_checkpoint_is_renamed(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, rename = os.fsync, os.replace
    synced: dict[int, int] = {}  # bytes by inode, since files are synced under another name
    sizes: list[int] = []
    record = tmp_path / "record.jsonl"

    def logging_sync(descriptor: int) -> None:
        sync(descriptor)
        state = os.fstat(descriptor)
        synced[state.st_ino] = state.st_size

    def logging_rename(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == "last.ckpt":
            for state in (Path(source).stat(), record.stat()):
                assert synced.get(state.st_ino) == state.st_size
            sizes.append(record.stat().st_size)
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", logging_sync)
    monkeypatch.setattr(os, "replace", logging_rename)
    ENGINES["lightning"](make_plan(*SMALL, "max_epochs=2", "checkpoint.every_n_steps=2"), ALONE)
    assert len(sizes) == 4, "after steps 2 and 4, and after each epoch of 3 steps"
    assert len({*sizes}) == 4, "the record had grown each time"


@pytest.fixture
def trained(make_plan: MakePlan, tmp_path: Path) -> Plan:
    """A plan of two epochs, as `resume=true` continues it after the first."""
    folder = tmp_path / "run"
    folder.mkdir()
    plan = replace(make_plan(*SMALL, "max_epochs=1", "data.samples=9"), run_dir=str(folder))
    ENGINES["lightning"](plan, ALONE)
    last = folder / "checkpoints" / "last.ckpt"
    return replace(plan, max_epochs=2, ckpt_path=str(last), resume=True)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "record.jsonl").read_bytes().splitlines(keepends=True)


def swapped(content: bytes) -> bytes:
    first, second, third, *rest = content.splitlines(keepends=True)
    return b"".join([first, third, second, *rest])


def test_damaged_record_is_refused_in_its_folder(
    trained: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In another folder training continues, with a notice."""
    record = Path(trained.run_dir) / "record.jsonl"
    whole = record.read_bytes()
    edited = whole.replace(b'"samples": 2', b'"samples": 3', 1)
    for content in (whole[:-900], edited, swapped(whole), None):  # None: it is lost
        record.write_bytes(content) if content else record.unlink()
        with pytest.raises(ConfigError) as raised:
            check_checkpoint(trained)
        assert "\n" not in str(raised.value)
        assert "/run: its record.jsonl is not what it was when" in str(raised.value)
        assert f"write ckpt_path={trained.ckpt_path} without resume and hydra.run.dir" in str(raised.value)
    beside = tmp_path / "beside"
    beside.mkdir()
    ENGINES["lightning"](replace(trained, run_dir=str(beside), resume=False), ALONE)
    assert capsys.readouterr().err.count("record.jsonl is not what it was; the new one begins here") == 1
    assert lines(beside, "step")[0]["step"] == 6


@pytest.mark.parametrize("target", ["", "checkpoints/last.ckpt"])
def test_record_is_continued_through_links(target: str, trained: Plan, tmp_path: Path) -> None:
    """The record is continued, without lines after the checkpoint; if it is damaged, the run is refused."""
    folder = Path(trained.run_dir)
    before = lines_of(folder)
    with (folder / "record.jsonl").open("ab") as record:
        record.write(b'{"step": {"epoch": 2, "st')
    (tmp_path / "link").symlink_to(folder / target)
    ckpt_path = tmp_path / "link" / (folder / "checkpoints" / "last.ckpt").relative_to(folder / target)
    plan = replace(trained, ckpt_path=str(ckpt_path), resume=False)
    write_config(plan)
    ENGINES["lightning"](plan, ALONE)
    after = lines_of(folder)
    assert after[1:7] == before[1:7]
    assert [step["step"] for step in lines(folder, "step")] == [*range(1, 11)]
    (tmp_path / "other").symlink_to(folder)
    (folder / "record.jsonl").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match=r"record.jsonl is not what it was"):
        earlier_lines(ckpt_path, tmp_path / "other", {"size": 900, "sha256": "0"})
