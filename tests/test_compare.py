"""Comparing two runs: each change of a record is found at its step, and named by the command."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.compare import USAGE, main
from lockstep.runs.compare import Comparison, compare
from lockstep.runs.compare.comparison_rules import FILES
from lockstep.runs.compare.tolerance import FLOAT64
from tests.test_tolerance import run_metadata

SMALL = [
    *("batch_size=12", "max_epochs=2", "seed=11", "threads=1", "accelerator=cpu", "logger=none", "precision=64-true"),
    *("data.test_size=1655", "data.val_size=12"),  # 130 digits in 11 batches
]


WEIGHTS = "parameters and buffers"
LAST_EPOCH = "after the last epoch"


def first_of(comparison: Comparison) -> tuple[str, str]:
    """The quantity that differs first, and where."""
    first = comparison.first_divergence
    assert first is not None
    return first.name, re.sub("(: ).*", r"\1", str(first.first))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders `single` and `ddp` of one plan in float64."""
    folder = tmp_path_factory.mktemp("runs")
    for strategy, devices in (("single", 1), ("ddp", 3)):
        world = (f"strategy={strategy}", f"devices={devices}", f"hydra.run.dir={folder / strategy}")
        lockstep.run(["model.net.hidden=[16]", *SMALL, *world])
    return folder


@pytest.fixture
def copied(two_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_runs, tmp_path / "copied"))


def test_another_world_is_within_a_measured_bound(two_runs: Path) -> None:
    comparison = compare(two_runs / "single", two_runs / "ddp")
    assert comparison.within_tolerance
    assert comparison.tolerance == FLOAT64
    assert comparison.verdict.startswith("within ")
    assert 0 < comparison.max_diff < 1e-10
    verdicts = {name: quantity.verdict for name, quantity in comparison.quantities.items()}
    exact = ("samples", "sample ids", "learning rate", "ranks of one run", "configuration", "steps", "position")
    assert all(verdicts.pop(name) == "identical" for name in (*exact, *FILES, "confusion matrix", "files of one run"))
    assert set(verdicts) == {
        *("loss", "gradient norm", "validation", "train", "test", "best weights"),
        *("weights saved", "optimizer state", "schedule", "results"),
    }
    assert compare(two_runs / "single", two_runs / "ddp", 0.0).verdict == "different"


def change(run: Path, kind: str, index: int, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the index-th line of one kind in a run's record."""
    path = run / "record.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    edit([line for line in lines if kind in line][index][kind])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("kind", "index", "edit", "first", "where"),
    [
        ("step", 2, lambda line: line.pop("grad_norm"), "gradient norm", "epoch 1, step 3, grad_norm: "),
        ("step", 12, lambda line: line.update(samples=13), "samples", "epoch 2, step 13, samples: "),
        ("validation", 1, lambda line: line.update({"val/acc": 2.0}), "validation", "epoch 2, val/acc: "),
        ("tensor", 3, lambda line: line.update(name="net.9.bias"), WEIGHTS, f"{LAST_EPOCH}, net.layers.2.bias: "),
    ],
)
def test_changed_line_is_detected(
    kind: str, index: int, edit: Callable[[dict[str, Any]], object], first: str, where: str, copied: Path
) -> None:
    changed = Path(shutil.copytree(copied / "single", copied / "changed"))
    change(changed, kind, index, edit)
    comparison = compare(copied / "single", changed)
    assert first_of(comparison) == (first, where)
    assert math.isinf(comparison.quantities[first].difference) == (first not in ("samples", "validation"))


@pytest.mark.parametrize("kind", ["weights", "optimizer"])
def test_ranks_that_diverge_alike_in_both_runs_are_named(kind: str, copied: Path) -> None:
    """Their gradients are all-reduced, so that every norm is equal on all ranks."""
    change(copied / "ddp", "fingerprint", 0, lambda line: line[kind].__setitem__(1, "0" * 64))
    comparison = compare(copied / "ddp", copied / "ddp")
    place = f"epoch 1, step 11, {kind} of ranks 0 and 1 in {copied / 'ddp'}: "
    assert first_of(comparison) == ("ranks of one run", place)
    apart = {name for name, quantity in comparison.quantities.items() if quantity.first is not None}
    assert apart == {"ranks of one run"}, "all else is equal in both"


def test_command(two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def status(*words: str) -> int:
        return main([str(two_runs / "single"), *words])

    ddp = str(two_runs / "ddp")
    assert status(ddp) == 0
    assert "expected: within 1e-10 (sums in another order, in float64)" in capsys.readouterr().out
    assert status(ddp, "tolerance=0") == 1
    text = capsys.readouterr().out
    assert "different; expected: identical (the tolerance that was given)" in text
    assert "They differ first in " in text
    assert status(ddp, ddp) == 2
    assert capsys.readouterr().err == f"{ddp}: this is one word too many; write {USAGE} tolerance=VALUE report=VALUE.\n"
    assert status(ddp, "report=/proc/none/page.html") == 2
    assert capsys.readouterr().err.startswith("/proc/none/page.html cannot be written: No such file or directory; ")
    assert status(ddp, "tolerence=0") == 2
    assert (
        capsys.readouterr().err
        == "tolerence=0: there is no such key (did you mean tolerance?); write tolerance=VALUE.\n"
    )
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")  # it starts no ranks, whoever has started it
    assert status(ddp) == 0
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    capsys.readouterr()
    assert status(str(two_runs)) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("record.jsonl", b"\xff\xfe\x00"),
        ("metrics.json", b'{"strategy": "ddp", "test/acc": 0.5}'),
    ],
)
def test_folder_without_a_run_is_refused(name: str, content: bytes, two_runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "folder" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{tmp_path / 'folder'}.* write ") as raised:
        compare(two_runs / "single", tmp_path / "folder")
    assert "\n" not in str(raised.value)


def test_a_damaged_record_is_refused(copied: Path) -> None:
    change(copied / "ddp", "step", 0, lambda line: line.update(epoch=[]))
    with pytest.raises(
        ConfigError, match=rf"{copied / 'ddp'}.*: it is damaged \(\w+\); write the folder of another run"
    ):
        compare(copied / "single", copied / "ddp")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a: [", "it is damaged (ParserError)"), (None, "it cannot be read (Is a directory)")],
)
def test_a_file_that_cannot_be_read_is_refused(content: bytes | None, reason: str, copied: Path) -> None:
    config = copied / "ddp" / "config.yaml"
    config.unlink()
    config.write_bytes(content) if content else config.mkdir()
    with pytest.raises(ConfigError, match=re.escape(f"{config}: {reason}")):
        compare(copied / "single", copied / "ddp")


def test_other_dropout_masks_need_the_same_samples_alone(copied: Path) -> None:
    """Any finite loss is allowed."""
    for name in ("single", "ddp"):
        change(copied / name, "run", 0, lambda line: line.update(dropout_rng="per_rank"))
    change(copied / "ddp", "step", 2, lambda line: line.update(loss_sum=1e9))
    comparison = compare(copied / "single", copied / "ddp")
    assert comparison.within_tolerance
    assert "expected: the same samples alone" in comparison.text()
    change(copied / "ddp", "step", 4, lambda line: line.update(samples=13))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 5, samples: "
    change(copied / "ddp", "step", 3, lambda line: line.update(loss_sum=None))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 4, loss_sum: "


def test_float32_bound_holds_for_the_first_steps(copied: Path) -> None:
    """A difference of 0.1 counts at step 3; at step 4 it is rounding that grew, but a missing key still counts."""
    for name in ("single", "ddp"):
        change(copied / name, "run", 0, lambda line: line.update(precision="32-true"))
        for file in ("config.yaml", "metrics.json"):
            (copied / name / file).unlink()

    def larger_norm(line: dict[str, Any]) -> None:
        line["grad_norm"] += 0.1

    change(copied / "ddp", "step", 3, larger_norm)
    comparison = compare(copied / "single", copied / "ddp")
    assert comparison.within_tolerance
    assert 0.01 < comparison.max_diff < 0.2
    assert comparison.verdict.startswith("drifts to ")
    assert "expected: within 0.0001 in the first 3 steps" in comparison.text()
    change(copied / "ddp", "step", 3, lambda line: line.pop("loss_sum"))
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 4, loss_sum: "
    change(copied / "ddp", "step", 2, larger_norm)
    assert first_of(compare(copied / "single", copied / "ddp"))[1] == "epoch 1, step 3, grad_norm: "


def test_runs_without_training_are_compared_by_their_results(tmp_path: Path) -> None:
    runs = tmp_path / "a", tmp_path / "b"
    for run in runs:
        run.mkdir()
    for results, first in (({"test/acc": 0.75}, "0.75 (by 2.5e-01)"), ({}, "'missing'")):
        for run, values in zip(runs, ({"test/acc": 0.5}, results), strict=True):
            (run / "metrics.json").write_text(json.dumps(run_metadata(**values)))
        divergence = compare(*runs).first_divergence
        assert divergence is not None
        assert divergence.first == f"metrics.json, test/acc: 0.5 against {first}"
    (runs[0] / "metrics.json").write_text(json.dumps(run_metadata()))
    with pytest.raises(ConfigError, match="nothing in common"):
        compare(*runs)


@pytest.mark.parametrize(
    ("file", "old", "new", "where"),
    [
        ("config.yaml", "devices: 3", "devices: 2", "config.yaml, devices"),
        ("metrics.json", '"precision"', '"precisions"', "metrics.json, precision"),
    ],
)
def test_files_that_contradict_the_record_of_their_run_are_detected(
    file: str, old: str, new: str, where: str, copied: Path
) -> None:
    """Two worlds may differ in these values."""
    path = copied / "ddp" / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    comparison = compare(copied / "single", copied / "ddp")
    assert first_of(comparison) == ("files of one run", f"{where} in {copied / 'ddp'}: ")
    assert not compare(copied / "ddp", copied / "ddp").within_tolerance


def test_best_checkpoints_are_compared(copied: Path, two_runs: Path) -> None:
    """By their weights, if they are of the same epoch, and by that epoch if the runs should be identical."""
    best = copied / "single" / "checkpoints" / "best.ckpt"
    state = torch.load(best, weights_only=True)
    state["state_dict"]["net.layers.2.bias"][3] += 0.25
    best.unlink()
    torch.save(state, best)
    comparison = compare(two_runs / "single", copied / "single")
    assert first_of(comparison) == ("best weights", "best.ckpt, state_dict.net.layers.2.bias: ")
    state["lockstep"]["best"] = ("val/acc", 0.5, 7)
    torch.save(state, best)
    assert first_of(compare(two_runs / "single", copied / "single", 0.0)) == ("best epoch", "best.ckpt, epoch: ")
    assert compare(two_runs / "ddp", copied / "single").within_tolerance, "a tie may go either way"
    best.write_bytes(b"half a file")
    assert first_of(compare(two_runs / "single", copied / "single"))[0] == "best.ckpt"
    best.unlink()
    assert first_of(compare(two_runs / "single", copied / "single"))[0] == "best.ckpt"
