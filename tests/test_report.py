"""The page of a run, of two and of a sweep: what it says, that it is whole, small and safe."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import lockstep.report
from lockstep.base.config_error import ConfigError
from lockstep.command.run_result import RunResult
from lockstep.runs.compare import compare
from lockstep.runs.report import page_of, page_of_several, render, report, reported
from lockstep.runs.run_files import save_config, save_confusion
from tests.test_tolerance import run_metadata

EVIL = "<script>alert(1)</script>"
WORDS = ["model=mlp", f"name='{EVIL}'", "optimizer.lr=0.1", "max_epochs=3"]
METADATA = {**run_metadata(), "engine": "lightning", "num_nodes": 1, "memory_format": "contiguous", "compile": False}
PHASES = {"data": 0.1, "forward": 1.0, "backward": 1.0, "optimizer": 0.5, "rest": 0.1, "val": 3.0}


def write_run(folder: Path, finished: bool = True, shift: float = 0.0, lr: float = 0.1, epochs: int = 2) -> Path:
    """Write the files of a run of three classes, ten steps in an epoch."""
    metadata = {**METADATA, "model": "MLP", "data": EVIL}
    lines: list[dict[str, Any]] = [{"run": metadata}]
    for step in range(1, 10 * epochs + 1):
        epoch, loss = (step + 9) // 10, 8 * (1 / step + shift)
        values = {"epoch": epoch, "step": step, "samples": 8, "ids": "0", "lr": lr, "loss_sum": loss}
        lines.append({"step": {**values, "grad_norm": 1.0, "grad_norm_spread": 0.0}})
        if step % 10 == 0:
            lines.append({"validation": {"epoch": epoch, "val/acc": 0.9 / epoch, "val/loss": 0.5 + shift}})
    folder.mkdir(parents=True)
    (folder / "record.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {**METADATA, "max_epochs": 3, "optimizer": {"lr": lr}}
    save_config(folder, yaml.safe_dump(config), WORDS, ["optimizer.lr"])
    if finished:
        results = {**metadata, "epochs": epochs, "steps": 10 * epochs, "test/acc": 0.5 + shift, "val/acc": 0.45}
        results |= {"train_seconds": 2.5, "samples_per_second": 64.0, "total_seconds": 3.5, "digest": f"abc{shift}"}
        results |= {"monitor": "val/acc", "mode": "max", "best": 0.9 - shift, "best_epoch": 1, "parameters": 10}
        results["predict/7"] = 14.0  # of no split
        (folder / "metrics.json").write_text(json.dumps(results))
        save_confusion(folder, [[3, 1, 0], [0, 4, 0], [4, 0, 0]], ["cat", EVIL, "dog"])
    ranks = [{**PHASES, "communication": 2.0}, {**PHASES, "forward": 2.9, "communication": 0.1}]
    notes = {
        "ranks": ranks,
        "epochs": [[1, 1.2, 2.0], [2, 1.3, 0.5]],
        "environment": {"torch": "2"},
        "commit": "c0ffee",
    }
    (folder / "report.json").write_text(json.dumps(notes))
    return folder


class Text(HTMLParser):
    """The text of a page, and its tags; what is within scripts and styles is no text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.parts, self.inside = list[str](), list[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.inside = tag

    def handle_data(self, data: str) -> None:
        self.parts += [data] if self.inside not in ("script", "style") else []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())


def read(folder: Path) -> str:
    return Text((folder / "report.html").read_text()).text


def test_a_run_says_what_was_done_and_whether_it_worked(tmp_path: Path) -> None:
    report(write_run(tmp_path / "run"))
    page = (tmp_path / "run" / "report.html").read_text()
    text = read(tmp_path / "run")
    for said in (
        f"MLP on {EVIL}: test accuracy 0.5 on 12 samples",
        "best epoch 1 (val accuracy 0.9)",
        "test acc 12 0.5 –",  # split, value, samples, last and best net
        "cat 0.4286 0.7500 0.5455 4 7",
        "dog as cat (4), cat as <script>alert(1)</script> (1).",
        "Rank 1 is the slowest",
        "optimizer.lr 0.1 0.001",  # and the default
        "c0ffee",
        f"python train.py model=mlp 'name='\"'\"'{EVIL}'\"'\"'' optimizer.lr=0.1",
    ):
        assert said in text, (said, text)
    assert len(page) < 1_000_000
    assert not re.search(r"(src|href)=[\"']?(?!data:)", page), "it needs no network"


def test_what_a_run_is_named_is_text(tmp_path: Path) -> None:
    """Also within the JSON of the charts, whose curves are named by whatever a module logs."""
    content = page_of(write_run(tmp_path / EVIL.replace("/", "_")))
    content["charts"].append({"title": "</script><script>alert(2)</script>", "x": "step", "lines": []})
    assert Text(render(content)).tags.count("script") == 3  # curves, those of time, and the code


def test_a_run_without_an_end_is_marked(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    report(folder)
    assert "unfinished Unfinished, after epoch 2 of 3: MLP" in read(folder)
    with pytest.raises(RuntimeError), reported(folder):
        raise RuntimeError("a traceback\nValueError: <b>why</b>")
    assert "Failed after epoch 2 of 3" in read(folder)
    assert "ValueError: <b>why</b>" in read(folder)


def test_two_runs_and_whether_the_difference_is_chance(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", shift=0.125, lr=0.2)
    text = Text(render(page_of_several([a, b]))).text
    assert "A lr=0.1 and B lr=0.2 differ; test acc 0.5 and 0.625" in text
    assert "B lr=0.2 is better by test acc: may be chance: ±0.39 by 12 samples." in text
    assert "They differ first in configuration" in text
    assert "Likely cause: their configurations differ in optimizer.lr." in text
    assert "<iframe" in compare(a, b)._repr_html_()


def test_a_sweep(tmp_path: Path) -> None:
    for number, shift in enumerate((0.0, 0.125, 0.25)):
        write_run(tmp_path / str(number), shift=shift, lr=0.1 * (number + 1))
    failure: dict[str, Any] = {
        "status": "failed",
        "reason": "a traceback\nValueError: <b>",
        "words": ["optimizer.lr=9"],
    }
    failure["config"] = {**METADATA, "optimizer": {"lr": 9}}
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "failure.json").write_text(json.dumps(failure))
    report(tmp_path)
    text = read(tmp_path)
    assert "3 of 4 jobs finished" in text
    assert "lr=0.1 is best, with best val/acc 0.9" in text
    assert "3 lr=9: failed: ValueError: <b>" in text


def test_both_engines_have_one_page(tmp_path: Path) -> None:
    for engine in ("lightning", "raw"):
        write_run(tmp_path / engine)
    save_config(tmp_path, "engine: both\n", [], [])
    report(tmp_path / "lightning")
    assert "(engine=raw has not followed yet)" in read(tmp_path)
    compare(tmp_path / "lightning", tmp_path / "raw").save(tmp_path)
    (tmp_path / "metrics.json").write_text("{}")
    report(tmp_path)
    assert "Lightning and raw are identical" in read(tmp_path)
    assert "The difference is 0 at each of 20 steps." in (tmp_path / "report.html").read_text()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(write_run(tmp_path / name)) for name in "abc"]
    monkeypatch.chdir(tmp_path)
    for typed, path in (([folders[0]], "a/report.html"), (folders, "report.html"), ([*folders[:2], "out=x"], "x")):
        assert lockstep.report.main(typed) == 0
        assert capsys.readouterr().out == f"{path}\n"
        assert (tmp_path / path).is_file()
    assert lockstep.report.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(f"FOLDER={tmp_path}/none: it has neither record.jsonl nor runs in it")


def test_jupyter_shows_the_page(tmp_path: Path) -> None:
    shown = RunResult({}, write_run(tmp_path / "run"))._repr_html_()
    assert Text(shown).tags == ["iframe"]


def test_what_goes_wrong_does_not_end_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path)
    assert capsys.readouterr().err.startswith(f"{tmp_path}/report.html was not written: ConfigError")
    with pytest.raises(ConfigError):
        page_of(tmp_path)
