"""A NaN or infinite loss ends the run with the number of its step; earlier checkpoints are kept, and finite."""

from pathlib import Path

import pytest
import torch

from lockstep.base.errors import NotFinite
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs.record import StepRecorder
from tests.checkpoints import net_state
from tests.comparing import lines
from tests.conftest import MakePlan
from tests.rank_helpers import with_engine

SAMPLES, BATCH, SEED = 16, 4, 3
POISON = 15
"""Which sample is too large: the square of its error is more than float32 holds."""
INPUTS = ",".join("1e30" if index == POISON else str(index / SAMPLES) for index in range(SAMPLES))
LINE = (
    "data=line",
    "data.val_size=0",
    f"data.inputs=[{INPUTS}]",
    "model=regression",
    "optimizer=sgd",
    "optimizer.lr=0.01",
)
JOB = (*LINE, f"batch_size={BATCH}", f"seed={SEED}", "max_epochs=2", "checkpoint.every_n_steps=1", "logger=none")
WRITE = "write a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on."


def where(world: int, accumulate: int) -> tuple[int, int]:
    """Return the step and the rank of the poisoned sample, by the order in docs/agreement.md."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED)).tolist()
    position = order.index(POISON)
    return position // BATCH // accumulate + 1, position % BATCH % world


def test_infinite_loss_ends_the_run(make_plan: MakePlan, tmp_path: Path) -> None:
    world = ("strategy=ddp", "devices=2", "accumulate_grad_batches=2")
    plan = with_engine(make_plan(*JOB, *world, "accelerator=cpu", "threads=1"), "lightning", tmp_path / "run")
    step, rank = where(2, 2)
    with pytest.raises(RankFailed) as failed:
        start_ranks(plan, ENGINES["lightning"])
    sentence = f"the loss of step {step} is inf; the checkpoints before it are kept; {WRITE}"
    assert str(failed.value) == f"rank {rank} failed: {sentence}"
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert all(tensor.isfinite().all() for tensor in net_state(last).values())
    assert torch.load(last, weights_only=True)["global_step"] == step - 1


@pytest.mark.slow
def test_detect_nan_false_trains_on(make_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_plan(*JOB, "strategy=ddp", "devices=2", "accelerator=cpu", "detect_nan=false")
    assert start_ranks(with_engine(plan, "lightning", tmp_path), ENGINES["lightning"])["steps"] == 8
    assert [line["loss_sum"] is None for line in lines(tmp_path, "step")] == [False] * 3 + [True] * 5


@pytest.mark.slow
def test_infinite_weights_are_not_saved(make_plan: MakePlan, tmp_path: Path) -> None:
    """The first loss is finite, and so large a step down it is not."""
    plan = make_plan(*JOB, "data.inputs=[1,2,3,4,5,6,7,8]", "optimizer.lr=3e38", "accelerator=cpu")
    with pytest.raises(RankFailed, match=r"rank 0 failed: after step 1 the weight \S+ is -?inf; the check"):
        start_ranks(with_engine(plan, "lightning", tmp_path), ENGINES["lightning"])
    assert not list(tmp_path.rglob("*.ckpt"))


def test_steps_are_counted_over_epochs_and_resumes(make_plan: MakePlan) -> None:
    """Four steps of two batches an epoch: in the third epoch, three batches done, the fourth is of the tenth step."""
    plan = make_plan(*LINE, "batch_size=2", "accumulate_grad_batches=2", "max_epochs=5", "accelerator=cpu")
    recorder = StepRecorder(plan, 1, torch.nn.Linear(1, 1), epoch=2, batch=3)
    with pytest.raises(NotFinite, match="the loss of step 10 is nan;"):
        recorder.batch((float("nan"), 1, 0.0), torch.tensor([0]))
