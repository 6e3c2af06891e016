"""Files of checkpoints: written atomically, kept under a second name, and checked for damage."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from lockstep.base.files import atomic_write
from lockstep.runs.checkpoint.files import LAST, PREVIOUS, DamagedCheckpoint, hardlink, keep_undamaged, read_checkpoint


def an_archive(path: Path, text: str = "numbers") -> Path:
    torch.save({"text": text * 100}, path)
    return path


def test_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / LAST
    path.write_text("before")
    with suppress(OSError), atomic_write(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "before"
        raise OSError(28, "No space left on device")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(LAST, "before")]
    with atomic_write(path) as temporary:
        temporary.write_text("after")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(LAST, "after")]


@pytest.mark.parametrize("has_links", [True, False])
def test_second_name_keeps_the_old_file(has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file system without links, by a copy."""

    def no_links(*_: object) -> None:
        raise OSError("not supported")

    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    last = an_archive(tmp_path / LAST, "first")
    (tmp_path / PREVIOUS).write_text("older")
    hardlink(last, PREVIOUS)
    assert last.samefile(tmp_path / PREVIOUS) == has_links
    an_archive(tmp_path / "new", "second").replace(last)
    assert torch.load(tmp_path / PREVIOUS)["text"] == "first" * 100
    assert torch.load(last)["text"] == "second" * 100


def test_undamaged_checkpoint_replaces_the_damaged(tmp_path: Path) -> None:
    """Else the first save would rotate the damaged one to previous.ckpt. The folder may be named by a link."""
    folder, link = tmp_path / "checkpoints", tmp_path / "link"
    folder.mkdir()
    (folder / PREVIOUS).write_text("whole")
    (folder / LAST).write_text("torn")
    link.symlink_to(folder)
    keep_undamaged(tmp_path / "another.ckpt", folder / LAST)
    assert (folder / LAST).read_text() == "torn"
    keep_undamaged(link / PREVIOUS, folder / LAST)
    assert (folder / LAST).read_text() == "whole"


def test_damage_is_detected(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "a.ckpt")
    content = archive.read_bytes()
    incomplete = "it is no complete checkpoint of this project"
    cases = [(content[:-30], incomplete), (content[:50], incomplete), (b"", incomplete), (b"text", incomplete)]
    for wrong, reason in [*cases, (content.replace(b"numbers", b"nXmbers", 1), "its checksums are wrong")]:
        archive.write_bytes(wrong)
        with pytest.raises(DamagedCheckpoint, match=reason):
            read_checkpoint(archive)
    with pytest.raises(DamagedCheckpoint, match="Is a directory"):
        read_checkpoint(tmp_path)
