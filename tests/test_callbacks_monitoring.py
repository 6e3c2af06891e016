"""Callbacks that show a module's predictions, and the line that it fits."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.base.structures import predictions_of
from lockstep.engine.callbacks import ConfusionMatrix
from lockstep.engine.callbacks.pictures import Pictures
from lockstep.runs.loggers import TensorBoard
from lockstep.runs.run_files import CONFUSION
from tests.checkpoints import net_state
from tests.comparing import metrics_in
from tests.conftest import MakeUserPlan, events_of
from tests.test_user_module import DDP, SINGLE, VIRTUAL, trained

JOB = ("model=shown", "data=images", "precision=64-true")
BOARD = ("logger=tensorboard",)
WORLDS = {"ddp": DDP, "fsdp": ("strategy=fsdp", "devices=2"), "virtual": VIRTUAL}


def table(run: Path) -> list[dict[str, str]]:
    with (run / CONFUSION).open(newline="") as file:
        return list(csv.DictReader(file))


def counted(run: Path) -> list[dict[str, str]]:
    """Return the table of the weights that a run has left, counted one sample after another."""
    import strange_shown  # type: ignore[import-not-found]

    module, data = strange_shown.Shown().double(), strange_shown.Images()
    module.load_state_dict(net_state(run / "checkpoints" / "last.ckpt"))
    data.setup()
    counts = [[0] * 4 for _ in range(3)]
    for x, y in zip(*data.parts["test"], strict=True):
        counts[int(y)][int(module(x[None].double()).argmax())] += 1
    assert any(row[3] for row in counts), "some are no class of the data"
    columns = [*(f"predicted {name}" for name in data.class_names), "predicted another"]
    rows = zip(data.class_names, counts, strict=True)
    return [{"true": name, **dict(zip(columns, map(str, row), strict=True))} for name, row in rows]


@pytest.mark.parametrize("world", ["ddp", *(pytest.param(name, marks=pytest.mark.slow) for name in [*WORLDS][1:])])
def test_confusion_of_all_ranks(world: str, make_user_plan: MakeUserPlan) -> None:
    """Nine samples in batches of four; the numbers of the run are as without the callbacks."""
    run = trained(make_user_plan(*JOB, *WORLDS[world]))
    assert table(run) == counted(run)
    if world != "ddp":
        return
    plain = trained(make_user_plan(*JOB, *WORLDS[world], "+model.returns=''", folder="without"))
    assert metrics_in(run)["digest"] == metrics_in(plain)["digest"]
    assert metrics_in(run)["val/loss"] == metrics_in(plain)["val/loss"]
    assert not (plain / CONFUSION).exists()


@pytest.mark.slow
def test_pictures_of_a_module(make_user_plan: MakeUserPlan) -> None:
    """A validation of one sample on two ranks; the first, the second, the fourth … and the last are drawn."""
    run = trained(make_user_plan(*JOB, *DDP, *BOARD, "max_epochs=5"))
    events = events_of(run, images=0, tensors=0)
    pictures = {tag: [one.step for one in events.Images(tag)] for tag in events.Tags()["images"]}
    assert pictures["val/confusion"] == [5, 10, 20, 25]
    assert pictures["val/worst"], "the only sample is predicted wrongly"


def test_most_confident_errors_are_collected(tmp_path: Path) -> None:
    shown = Pictures(TensorBoard(tmp_path, {}), lambda: 0)
    logits = torch.tensor([[9.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    shown.add(torch.arange(3.0).view(3, 1, 1, 1), torch.tensor([0, 0, 1]), logits)
    shown.add(torch.tensor([[[[7.0]]]]), torch.tensor([0]), torch.tensor([[0.0, 6.0]]))
    inputs, targets, predicted, confidence = shown.worst
    assert inputs.flatten().tolist()[:3] == [7.0, 2.0, 1.0]
    assert (targets.tolist()[:3], predicted.tolist()[:3]) == ([0, 1, 0], [1, 0, 1])
    assert confidence.tolist() == sorted(confidence.tolist(), reverse=True)
    assert confidence[3] == -1, "a right answer comes behind them, and is not shown"


def test_counts_of_batches(tmp_path: Path) -> None:
    """Classes by the width of logits; targets that are no class are left out, other loaders too."""
    trainer: Any = SimpleNamespace(datamodule=None, testing=True, is_global_zero=True)
    module: Any = SimpleNamespace(device=torch.device("cpu"))
    callback = ConfusionMatrix(tmp_path, False, lambda: True)
    callback.on_test_start(trainer, module)
    one_hot = torch.eye(3)
    batch = {"logits": one_hot[[0, 1, 1, 2]], "targets": torch.tensor([0, 1, 2, -100])}
    for loader, outputs in enumerate((batch, batch)):
        callback.on_test_batch_end(trainer, module, outputs, None, 0, loader)
    callback.on_test_batch_end(
        trainer, module, {"preds": torch.tensor([0, 1]), "targets": torch.tensor([1, 1])}, None, 1
    )
    callback.on_test_epoch_end(trainer, module)
    assert callback.counts is not None
    assert callback.counts.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert table(tmp_path)[2] == {"true": "2", "predicted 0": "0", "predicted 1": "1", "predicted 2": "0"}


LOGITS, TARGETS = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
OTHERS: dict[str, Any] = {
    "no targets": {"logits": LOGITS},
    "real targets": {"preds": LOGITS, "targets": torch.randn(4, 3)},
    "other shapes": {"logits": torch.randn(4, 7, 3), "targets": torch.zeros(4, 7, dtype=torch.int64)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_outputs_have_no_predictions(name: str) -> None:
    assert predictions_of(OTHERS[name]) is None


def test_fitted_line_of_a_run(make_user_plan: MakeUserPlan) -> None:
    """Exactly that of the final weights, on each rank; a net from real numbers has no confusion matrix."""
    fitted = ("callbacks=fitted_line", "callbacks.fitted_line.predict=[7]", "precision=64-true")
    run = trained(make_user_plan("model=line", "data=line", "data.samples=50", *WORLDS["fsdp"], *fitted))
    weights, metrics = net_state(run / "checkpoints" / "last.ckpt"), metrics_in(run)
    slope, intercept = weights["net.weight"].item(), weights["net.bias"].item()
    assert metrics["intercept"] == intercept
    assert metrics["slope"] == (slope + intercept) - intercept
    assert metrics["predict/7"] == pytest.approx(7 * slope + intercept, rel=1e-15)
    assert not (run / CONFUSION).exists()


def test_fitted_line_needs_one_number(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*JOB, *SINGLE, "callbacks=fitted_line", "strategy.in_process=true")
    with pytest.raises(ConfigError, match="FittedLine needs a net from one number to one number"):
        trained(plan)
