"""Jobs of a user's LightningModule that are refused, each with the reason and what to write."""

from pathlib import Path

import pytest

from lockstep.config_error import ConfigError
from tests.conftest import MakeUserPlan
from tests.test_user_module import MODULES, SINGLE, trained


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            (*MODULES["classifier"], "strategy=dp", "devices=2"),
            "strategy=dp: each replica would log, measure and step separately, and its state would be lost; "
            "write strategy=virtual, which runs the ranks of ddp in one process, or strategy=ddp.",
        ),
        (
            (*MODULES["classifier"], "strategy=model_parallel", "devices=2"),
            "strategy=model_parallel: it places the stages of a net on devices, and a LightningModule does not "
            "compute by stages alone; write strategy=fsdp, which divides the optimizer state.",
        ),
        (
            (*MODULES["gan"], "accumulate_grad_batches=2"),
            "accumulate_grad_batches=2: GAN optimizes manually, and does it itself; write accumulate_grad_batches=1.",
        ),
        (
            ("model=classifier", "data=model"),
            "data=model: it has no train_dataloader; write data with one.",
        ),
        (
            ("model=classifier", "data=model", "+data.dataset._target_=strange_loaders.BlobsData", "+data.split.val=1"),
            "data.split={val:1}: a LightningDataModule or IterableDataset decides it; write nothing in its place.",
        ),
        (
            (*MODULES["classifier"], "optimizer.lr=0.1"),
            "optimizer=adam: Classifier configures its optimizer itself; write no optimizer and scale_lr, "
            "but an argument of the module, for example model.lr=0.01.",
        ),
    ],
)
def test_invalid_jobs_are_rejected(overrides: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(ConfigError) as refused:
        make_user_plan(*overrides)
    assert str(refused.value) == sentence


def test_a_pytorch_lightning_module_is_rejected(
    make_user_plan: MakeUserPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytorch_lightning")
    (tmp_path / "of_old_name.py").write_text(
        "import pytorch_lightning as pl\n\n\nclass Old(pl.LightningModule):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        make_user_plan("model=regressor", "model._target_=of_old_name.Old", "data=stream")
    assert str(refused.value) == (
        "model._target_=of_old_name.Old: it derives from pytorch_lightning, not from lightning; "
        "write import lightning.pytorch as pl in its file."
    )


def test_a_monitor_that_nothing_logs_is_named(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*MODULES["stream"], "engine=raw", "checkpoint.monitor=val_acc")
    with pytest.raises(ConfigError, match=r"^checkpoint.monitor=val_acc: Regressor logs no such value; write one of "):
        trained(plan)


def test_a_plateau_of_steps_is_in_no_checkpoint_within_an_epoch(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan("model=uneven", "data=uneven_data", "engine=raw", *SINGLE, "checkpoint.every_n_steps=2")
    with pytest.raises(ConfigError, match=r"^checkpoint.every_n_steps=2: ReduceLROnPlateau steps after each batch"):
        trained(plan)
