"""Virtual ranks compute what the ranks of ddp do, also what each draws for itself; ddp resumes their checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.base.random_state import seed_by
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES
from lockstep.strategies.parallel.virtual_ranks import VirtualRanks
from tests.checkpoints import net_state
from tests.conftest import MakePlan, require_refused
from tests.resuming import going_on_with, killed, same_after_kill

SMALL = (
    *("data=digits", "data.test_size=1700", "data.val_size=20", "batch_size=15", "threads=1", "logger=none"),
    "trainer.limit_test_batches=2",
)
"""77 digits: six batches an epoch, the last of two, so that rank 2 of three has none of it."""
VIRTUAL = ("strategy=virtual", "devices=3")
DROPOUT = ("model=lenet", "model.net.dropout=0.5")


def trained(plan: Plan, folder: Path) -> Path:
    folder.mkdir()
    start_ranks(replace(plan, run_dir=str(folder)), ENGINES["lightning"])
    return folder


@pytest.mark.slow
def test_killed_it_ends_the_same(make_plan: MakePlan) -> None:
    """Within an epoch and within an accumulation, with the generators and statistics of each rank."""
    world = ("strategy=virtual", "devices=3", "checkpoint.every_n_steps=1", "accumulate_grad_batches=2", "max_epochs=2")
    plan = make_plan(*SMALL, *DROPOUT, *world)
    same_after_kill(plan, 4)


@pytest.mark.slow
def test_ddp_goes_on_with_its_checkpoints(make_plan: MakePlan, tmp_path: Path) -> None:
    """As if it had trained from the beginning: with the masks that each rank would have drawn."""
    job = (*SMALL, *DROPOUT, "precision=64-true", "devices=3", "max_epochs=2")
    plans = {name: make_plan(*job, f"strategy={name}", "checkpoint.every_n_steps=1") for name in ("virtual", "ddp")}
    uninterrupted = trained(plans["ddp"], tmp_path / "uninterrupted")
    begun = replace(plans["virtual"], run_dir=str(tmp_path / "begun"))
    Path(begun.run_dir).mkdir()
    going = killed(begun, 4)
    gone_on = replace(plans["ddp"], run_dir=begun.run_dir, resume=True, ckpt_path=going.ckpt_path)
    start_ranks(gone_on, ENGINES["lightning"])
    assert going_on_with(gone_on).ckpt_path is not None
    expected, resumed = (net_state(Path(run, "checkpoints", "last.ckpt")) for run in (uninterrupted, begun.run_dir))
    assert all((tensor - resumed[name]).abs().max() < 1e-10 for name, tensor in expected.items())


class Counts(nn.Module):
    """It counts its calls, and adds noise."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1  # another tensor
        return x + torch.rand(())


def in_turn(ranks: VirtualRanks) -> list[float]:
    """Return the outputs of all ranks for zeros, one after the other."""
    outputs = []
    for rank in range(ranks.count):
        with ranks.as_rank(rank):
            outputs.append(float(ranks.net(torch.zeros(()))))
    return outputs


def test_the_noise_and_the_buffers_of_each_rank() -> None:
    """By hand: rank r draws from a generator seeded by seed + 1 + r, and counts its own calls."""
    torch.manual_seed(8)
    ranks = VirtualRanks(net := Counts(), 3, seed=7)
    generators = [torch.Generator().manual_seed(8 + rank) for rank in range(3)]
    for calls in (1, 2):
        ranks.begin()
        assert in_turn(ranks) == [float(torch.rand((), generator=generator)) for generator in generators]
        assert float(net.calls) == calls, "of rank 0 alone"
        assert [float(buffers["calls"]) for _, buffers in ranks.states()] == [calls, calls]
    ranks.buffers, ranks.evaluation = {}, (4, 2)
    outputs = in_turn(ranks)
    assert float(net.calls) == 5, "all of them evaluate with the buffers of rank 0"
    for rank in (1, 2):
        seed_by(4, 2, rank)
        assert outputs[rank] == float(torch.rand(()))


INVALID = {
    "sync_batchnorm=true": "sync_batchnorm=true: then nothing differs by rank",
    "num_nodes=2": "num_nodes=2: strategy=virtual is one process on one machine",
}


@pytest.mark.parametrize("override", INVALID)
def test_rejected_options(override: str, make_plan: MakePlan) -> None:
    require_refused(INVALID[override], make_plan, *SMALL, *DROPOUT, *VIRTUAL, override)
