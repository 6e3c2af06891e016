"""Files of checkpoints: whole or not at all, the newest that is whole, and what is said of one that is not."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from lockstep.checkpoint.choice import is_readable, newest_checkpoint
from lockstep.checkpoint.files import FOLDER, LAST, PREVIOUS, damage, hardlink, write_synced


def an_archive(path: Path, text: str = "numbers", age: float = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"text": text * 100}, path)
    now = path.stat().st_mtime
    os.utime(path, (now - age, now - age))
    return path


def test_a_file_that_cannot_be_finished_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "a" / "last.ckpt"
    path.parent.mkdir()
    path.write_text("before")

    def half(file: BinaryIO) -> None:
        file.write(b"aft")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_synced(path, half)
    assert path.read_text() == "before"
    assert [own.name for own in path.parent.iterdir()] == ["last.ckpt"]


def test_nothing_is_seen_under_the_name_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    seen = []

    def slowly(file: BinaryIO) -> None:
        for _ in range(3):
            file.write(b"x" * 100_000)
            seen.append(path.exists())

    write_synced(path, slowly)
    assert seen == [False] * 3
    assert path.stat().st_size == 300_000


def test_a_second_name_outlives_the_first(tmp_path: Path) -> None:
    last = an_archive(tmp_path / LAST, "first")
    (tmp_path / PREVIOUS).write_text("older")
    hardlink(last, PREVIOUS)
    an_archive(tmp_path / "new", "second").replace(last)
    assert torch.load(tmp_path / PREVIOUS)["text"] == "first" * 100
    assert torch.load(last)["text"] == "second" * 100


def test_without_links_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", no_links)
    last = an_archive(tmp_path / LAST)
    hardlink(last, PREVIOUS)
    assert (tmp_path / PREVIOUS).read_bytes() == last.read_bytes()
    assert (tmp_path / PREVIOUS).stat()[stat.ST_INO] != last.stat()[stat.ST_INO]


def test_damage_is_seen(tmp_path: Path) -> None:
    whole = an_archive(tmp_path / "a.ckpt")
    assert damage(whole) is None
    numbers = whole.read_bytes()
    for wrong in (numbers[:-30], numbers[:50], b"", b"text", numbers.replace(b"numbers", b"nXmbers", 1)):
        whole.write_bytes(wrong)
        assert damage(whole) in ("it is no complete checkpoint file", "its checksums are wrong")
    assert damage(tmp_path) == "Is a directory"
    assert damage(tmp_path / "missing") == "No such file or directory"


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_makes_a_checkpoint_pass_that_does_not_load(bit: int, tmp_path: Path) -> None:
    """Every byte of a small file in turn: the zip's directory has no checksum of its own."""
    whole = an_archive(tmp_path / "a.ckpt")
    numbers = whole.read_bytes()
    for position in range(bit, len(numbers), 8):
        wrong = bytearray(numbers)
        wrong[position] ^= 1 << bit
        whole.write_bytes(wrong)
        if is_readable(whole):
            assert torch.load(whole)["text"] == "numbers" * 100


def test_the_newest_whole_one_of_several_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    oldest = an_archive(one / FOLDER / LAST, age=50)
    older = an_archive(two / FOLDER / PREVIOUS, age=20)
    newest = an_archive(two / FOLDER / LAST)
    an_archive(two / FOLDER / "best.ckpt")
    assert newest_checkpoint([one, two]) == (newest, [])
    newest.write_bytes(newest.read_bytes()[:-5])
    assert newest_checkpoint([one, two]) == (older, [newest])
    older.write_bytes(b"")
    os.utime(older, (0, 0))
    assert newest_checkpoint([one, two]) == (oldest, [newest])
    oldest.unlink()
    assert newest_checkpoint([one, two]) == (None, [newest, older])
    assert newest_checkpoint([tmp_path / "nowhere"]) == (None, [])
