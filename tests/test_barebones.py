"""trainer.barebones: nothing that only watches a run; its record and its metrics stay."""

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.runs.compare import compare
from tests.comparing import lines, metrics_in
from tests.conftest import MakePlan, MakeUserPlan
from tests.test_user_module import DDP, MODULES, by_both, trained

BARE = "trainer.barebones=true"
WATCHED = ("logger=[csv,tensorboard]", "trainer.barebones=false")


@pytest.mark.parametrize(
    "job",
    [
        MODULES["autoencoder"],
        pytest.param(("model=mlp", "model.net.hidden=[6]", "data=blobs", "batch_size=16"), id="net"),
    ],
)
def test_barebones_writes_less_and_computes_the_same(job: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """By either loop. What a module logs is in no file; the record has each step and each tensor."""
    usual = trained(make_user_plan(*job, *DDP, *WATCHED, folder="usual"))
    runs = by_both(make_user_plan(*job, *DDP, WATCHED[0], BARE, folder="both"))
    for run in runs:
        assert {path.name for path in run.iterdir()} <= {"record.jsonl", "metrics.json", "ranks", "confusion.csv"}
    assert compare(runs[0], runs[1]).verdict == "identical"
    tensors = [lines(run, "tensor") for run in (usual, *runs)]
    assert tensors[1] == tensors[2] == tensors[0] != []
    logged = [{*metrics_in(run)} for run in (usual, runs[0])]
    assert any("val" in name for name in logged[0] - logged[1]), logged


@pytest.mark.parametrize(
    "override",
    [
        *("trainer.num_sanity_val_steps=2", "trainer.fast_dev_run=true", "trainer.detect_anomaly=true", "resume=true"),
        *("trainer.enable_progress_bar=true", "checkpoint.every_n_steps=5", "model_summary=true"),
    ],
)
def test_options_that_barebones_disables(override: str, make_plan: MakePlan) -> None:
    with pytest.raises(ConfigError, match=f"^trainer.barebones=true: it disables {override.split('=')[0]}; write "):
        make_plan("data=digits", BARE, override)


def test_barebones_rejects_a_callback_that_saves(make_user_plan: MakeUserPlan) -> None:
    saving = ("callbacks=timer", "callbacks.timer._target_=lightning.pytorch.callbacks.ModelCheckpoint")
    with pytest.raises(ConfigError, match=r"^callbacks=ModelCheckpoint: trainer.barebones=true saves no checkpoint"):
        make_user_plan("model=late", "data=none", BARE, *saving, "~callbacks.timer.duration", folder="saving")
