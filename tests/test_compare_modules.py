"""The verdict names the likely reason if runs of a LightningModule in two worlds differ."""

import json

import pytest

from lockstep.compare import compare
from lockstep.compare.tolerance import likely_reason
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, SINGLE, trained

JOB = ("model=regressor", "model._target_=strange_steps.AcrossSamples", "data=stream", "max_epochs=1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("+model.loss=true",), "Their ranks have other shares of a batch: a loss across samples, statistics of"),
        ((), "The losses agree and the ranks have other shares of a batch: what the module logs is no mean over"),
    ],
)
def test_likely_reason_of_a_module(words: tuple[str, ...], reason: str, make_user_plan: MakeUserPlan) -> None:
    job = (*JOB, *words, "engine=raw", "precision=64-true")
    runs = [trained(make_user_plan(*job, *world, folder=name)) for name, world in (("single", SINGLE), ("ddp", DDP))]
    verdict = compare(runs[0], runs[1])
    assert verdict.text().splitlines()[-1].startswith(reason)
    verdict.save(runs[0])
    assert json.loads((runs[0] / "comparison.json").read_text())["likely_reason"].startswith(reason)


PLAIN = {"strategy": "single", "devices": 1, "num_nodes": 1, "world_size": 1, "accelerator": "cpu"} | {
    "optimizer": "adam",
    "micro_batches": 1,
}
MODULE = {key: value for key, value in PLAIN.items() if key != "optimizer"}
RANKS = {"strategy": "ddp", "devices": 2, "world_size": 2}


def test_likely_reason_needs_other_worlds_and_a_module() -> None:
    assert likely_reason(MODULE, {**MODULE, **RANKS}, "loss") is not None
    assert likely_reason(MODULE, {**MODULE, **RANKS}, "learning rate") is None
    assert likely_reason(MODULE, MODULE, "loss") is None
    assert likely_reason(PLAIN, {**PLAIN, **RANKS}, "loss") is None
