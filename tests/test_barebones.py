"""trainer.barebones: nothing that only watches a run; its record and its metrics stay."""

import json
from collections.abc import Callable

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.plan import Plan
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, MODULES, SINGLE, by_both, trained

BARE = "trainer.barebones=true"
WATCHED = ("logger=[csv,tensorboard]", "trainer.barebones=false")


@pytest.mark.parametrize(
    "job",
    [
        MODULES["autoencoder"],
        pytest.param(("model=mlp", "model.hidden=[6]", "data=blobs", "batch_size=16"), id="net"),
        pytest.param(("model=residual", "data=noisy", "batch_size=16", "callbacks=timer"), marks=pytest.mark.slow),
    ],
)
def test_what_watches_is_left_out_and_the_numbers_stay(job: tuple[str, ...], make_own: MakeOwn) -> None:
    """By either engine. What a module logs is in no file; the record has each step and each tensor."""
    usual = trained(make_own(*job, *DDP, *WATCHED, "engine=raw", folder="usual"))
    runs = by_both(make_own(*job, *DDP, WATCHED[0], BARE, folder="both"))
    for run in runs:
        assert {path.name for path in run.iterdir()} <= {"record.jsonl", "metrics.json", "ranks", "confusion.csv"}
    assert compare(runs[0], runs[1]).verdict == "identical"
    tensors = [
        [line for line in (run / "record.jsonl").read_text().splitlines() if line.startswith('{"tensor"')]
        for run in (usual, *runs)
    ]
    assert tensors[0]
    assert tensors[1] == tensors[2] == tensors[0]
    logged = [{*json.loads((run / "metrics.json").read_text())} for run in (usual, runs[0])]
    assert any("val" in name for name in logged[0] - logged[1]) == (job[0] == "model=autoencoder"), logged


REFUSED = [
    (("trainer.num_sanity_val_steps=2",), "trainer.num_sanity_val_steps=2: trainer.barebones=true disables it; write"),
    (("trainer.fast_dev_run=true",), "write trainer.fast_dev_run=false, or trainer.barebones=false."),
    (("trainer.detect_anomaly=true",), "trainer.detect_anomaly=true: trainer.barebones=true disables it; write"),
    (("trainer.enable_progress_bar=true",), "write trainer.enable_progress_bar=null, or trainer.barebones=false."),
    (("checkpoint.every_n_steps=5",), "checkpoint.every_n_steps=5: trainer.barebones=true saves no checkpoint; write"),
    (("resume=true",), "resume=true: trainer.barebones=true saves no checkpoint to resume from; write"),
    (("trainer.num_sanity_val_steps=-2", "trainer.barebones=false"), "it must be 0 or more, or -1 for all batches"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_what_asks_for_what_is_left_out_is_refused(
    words: tuple[str, ...], sentence: str, make_plan: Callable[..., Plan]
) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan("data=digits", *([] if "=false" in words[-1] else [BARE]), *words)
    assert sentence in str(raised.value)


def test_of_a_module_what_needs_its_values(make_own: MakeOwn) -> None:
    job = (*MODULES["classifier"], *SINGLE, BARE)
    with pytest.raises(ConfigError, match=r"^checkpoint.monitor=val_loss: with trainer.barebones=true self.log stores"):
        make_own(*job, "checkpoint.monitor=val_loss")
    saving = ("callbacks=timer", "callbacks.timer._target_=lightning.pytorch.callbacks.ModelCheckpoint")
    with pytest.raises(ConfigError, match=r"^callbacks=ModelCheckpoint: trainer.barebones=true saves no checkpoint"):
        make_own("model=late", "data=model", BARE, *saving, "~callbacks.timer.duration", folder="saving")
