"""Sliced masks: one mask of the global batch whatever the world, another for each step, layer and seed."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lockstep.config_error import ConfigError
from lockstep.nets.lenet import LeNet
from lockstep.parallel.cpu_data_parallel import CpuDataParallel
from lockstep.parallel.global_dropout import GlobalMasks, convert_dropout
from lockstep.plan import Plan
from tests.conftest import MakePlan

SLICED = ("model=lenet", "dropout_rng=global", "batch_size=12", "data.test_size=1664", "data.val_size=12")
"""121 digits are left to train on: eleven batches, the last of one."""


@pytest.fixture
def plan(make_plan: MakePlan) -> Plan:
    return make_plan(*SLICED, "strategy=ddp", "devices=4")


@pytest.mark.parametrize("batch", [0, 9, 10])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_hold_slices_of_one_mask(make_plan: MakePlan, world: int, batch: int) -> None:
    """Rank r of W has the rows r, r+W, …: put together again, they are the mask of one process."""
    plan = make_plan(*SLICED, "strategy=ddp", f"devices={world}")

    def rows(plan: Plan, rank: int) -> Tensor:
        masks = GlobalMasks(plan, rank)
        masks.epoch, masks.batch = 1, batch
        return masks.mask(0, (3, 5), 0.5)

    global_mask = rows(make_plan(*SLICED), 0)
    assert len(global_mask) == (1 if batch == 10 else 12)
    for rank in range(world):
        assert torch.equal(rows(plan, rank), global_mask[rank::world])


def test_each_step_layer_and_seed_has_another_mask(plan: Plan) -> None:
    def mask(seed: int, epoch: int, batch: int, layer: int) -> Tensor:
        masks = GlobalMasks(replace(plan, seed=seed), 0)
        masks.epoch, masks.batch = epoch, batch
        return masks.mask(layer, (50,), 0.5)

    seen = [mask(*where) for where in ((42, 0, 0, 0), (43, 0, 0, 0), (42, 1, 0, 0), (42, 0, 1, 0), (42, 0, 0, 1))]
    assert all(not torch.equal(a, b) for index, a in enumerate(seen) for b in seen[:index])
    assert torch.equal(seen[0], mask(42, 0, 0, 0))


def test_the_mean_stays(plan: Plan) -> None:
    masks = GlobalMasks(replace(plan, batch_size=120), 0)
    mask = masks.mask(0, (1000,), 0.2)
    assert set(mask.flatten().tolist()) == {0.0, 1.25}
    assert mask.mean() == pytest.approx(1, abs=0.02)  # 30,000 draws, standard error 0.003


def test_modules_are_replaced_and_parameters_keep_their_names(plan: Plan) -> None:
    net, plain = (LeNet((1, 28, 28), 10, 0.5) for _ in range(2))
    convert_dropout(plan, 0, net)
    assert not [module for module in net.modules() if type(module) in (nn.Dropout, nn.Dropout2d)]
    assert net.state_dict().keys() == plain.state_dict().keys()
    net.load_state_dict(plain.state_dict())
    images = torch.randn(3, 1, 28, 28)
    assert torch.equal(net.eval()(images), plain.eval()(images)), "evaluation drops nothing"


def test_dropout2d_drops_channels(plan: Plan) -> None:
    net = nn.Sequential(nn.Dropout2d(0.5), nn.Identity())
    convert_dropout(plan, 0, net)
    out = net(torch.ones(3, 20, 4, 4))
    assert torch.equal(out, out[:, :, :1, :1].expand_as(out))
    assert set(out.flatten().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("samples", [12, 7, 1])
def test_replicas_have_chunks_of_the_mask(make_plan: MakePlan, samples: int) -> None:
    """Three replicas drop what the plain net drops."""
    size = "data.test_size=1664"
    small = ("model=lenet", "dropout_rng=global", f"batch_size={samples}", size, "data.val_size=12")
    torch.manual_seed(0)
    net = LeNet((1, 28, 28), 10, 0.5).double()
    images = torch.randn(samples, 1, 28, 28, dtype=torch.float64)
    convert_dropout(make_plan(*small), 0, net)
    expected = net(images)
    alone = LeNet((1, 28, 28), 10, 0.5).double()
    alone.load_state_dict(net.state_dict())
    convert_dropout(make_plan(*small, "strategy=dp", "devices=3"), 0, alone)
    out = CpuDataParallel(alone, 3)(images)
    assert torch.allclose(out, expected, rtol=0, atol=1e-12)


def test_micro_batches_have_no_slice(make_plan: MakePlan) -> None:
    with pytest.raises(
        ConfigError, match=r"dropout_rng=global: a mask belongs to an undivided batch.*write dropout_rng=per_rank"
    ):
        make_plan("strategy=model_parallel", "model=split_cnn", "strategy.micro_batches=2", "dropout_rng=global")


def test_no_default_dtype_changes_a_mask(plan: Plan) -> None:
    """Lightning makes float64 the default while it trains in 64-true."""
    expected = GlobalMasks(plan, 0).mask(0, (3, 5), 0.5)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(GlobalMasks(plan, 0).mask(0, (3, 5), 0.5), expected)
    finally:
        torch.set_default_dtype(torch.float32)
