"""The linear net on small integers: losses, gradients and steps written out, asserted with == on one rank and two.

y = wx + b from w = 1, b = 0 on (1, 2) (2, 3) (3, 7) (4, 9); mean squared error, lr ⅛. All numbers are sums of a few
powers of two, so float32 holds them exactly.

step 1, all four samples
    errors wx + b - y:   -1 -1 -4 -5                            loss sum 1 + 1 + 16 + 25 = 43
    dL/dw = 2/4 · Σ error · x = ½ · (-1 - 2 - 12 - 20) = -17.5      w ← 1 + 17.5/8 = 3.1875
    dL/db = 2/4 · Σ error     = ½ · (-11)              = -5.5       b ← 0 + 5.5/8  = 0.6875
step 2, all four samples
    errors:   1.875  4.0625  3.25  4.4375                       loss sum 50.2734375
    dL/dw = ½ · (1.875 + 8.125 + 9.75 + 17.75) = 18.75              w ← 3.1875 - 18.75/8 = 0.84375
    dL/db = ½ · 13.625 = 6.8125                                     b ← 0.6875 - 6.8125/8 = -0.1640625
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep.data.samples import Splits
from lockstep.data.tensors import Split

from lockstep import data, schemas
from lockstep.launch.topology import RankContext
from lockstep.nets.linear import Linear
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.checkpoints import net_state
from tests.comparing import lines
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES, on_ranks, with_engine

SEED = 7
"""Orders three samples 0 1 2."""

FOUR = [(1.0, 2.0), (2.0, 3.0), (3.0, 7.0), (4.0, 9.0)]


def integers(samples: int, *_: object) -> Splits:
    x, y = torch.tensor(FOUR[:samples]).T[:, :, None]
    return Splits(Split(x, y), Split(x[:0], y[:0]), Split(x, y), outputs=1)


def from_one_and_zero(*_: Any, **__: Any) -> Linear:
    net = Linear((1,), 1)
    with torch.no_grad():
        net.affine.weight.fill_(1.0)
        net.affine.bias.fill_(0.0)
    return net


def by_both_engines(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: each case by both engines, on the integers, from w = 1 and b = 0."""
    schemas.Linear.path = f"{__name__}.{from_one_and_zero.__name__}"
    for case, each in cases_of(plan).items():
        data.load = partial(integers, each.data.train_samples)
        for name, run in ENGINES.items():
            run(with_engine(each, name, Path(plan.run_dir) / case / name), context)
    return {}


def cases_of(plan: Plan) -> dict[str, Plan]:
    """Return two epochs of four samples; one of three in batches of two, and the same in one step."""
    assert isinstance(plan.data, schemas.Line)
    ragged = replace(plan, max_epochs=1, batch_size=2, seed=SEED, data=replace(plan.data, samples=3))
    return {
        "four": plan,
        "ragged": ragged,
        "accumulated": replace(ragged, accumulate_grad_batches=2, optimizer=plan.optimizer.with_lr(3 / 32)),
    }


REGRESSION = [
    *("model=linear", "data=line", "data.val_size=0", "data.samples=4", "batch_size=4", "optimizer=sgd"),
    *("optimizer.lr=0.125", "max_epochs=2", "logger=none", "accelerator=cpu"),
]


@pytest.mark.parametrize(("strategy", "devices"), [("single", 1), ("ddp", 2), ("dp", 2)])
def test_steps_on_integers(strategy: str, devices: int, make_plan: MakePlan) -> None:
    """The first three samples in batches of two: the second batch is (3, 7) alone, on rank 0.

    step 1: errors -1 -1; dL/dw = 2/2 · (-1 - 2) = -3, dL/db = -2     w ← 1.375, b ← 0.25
    step 2: error 1.375·3 + 0.25 - 7 = -2.625; dL/dw = 2/1 · -2.625 · 3 = -15.75, dL/db = -5.25
                                                                       w ← 3.34375, b ← 0.90625
    accumulated, one step of three samples: errors -1 -1 -4, with lr 3/32 so that 2/3 · 3/32 = 1/16:
        dL/dw · lr = 1/16 · (-1 - 2 - 12) = -0.9375, dL/db · lr = 1/16 · -6 = -0.375     w ← 1.9375, b ← 0.375
    """
    assert torch.randperm(3, generator=torch.Generator().manual_seed(SEED)).tolist() == [0, 1, 2]
    plan = make_plan(*REGRESSION, f"strategy={strategy}", f"devices={devices}")
    on_ranks(plan, by_both_engines)
    for name in ENGINES:
        first, second = lines(Path(plan.run_dir) / "four" / name, "step")
        assert (first["loss_sum"], second["loss_sum"]) == (43.0, 50.2734375)
        assert first["grad_norm"] == pytest.approx((17.5**2 + 5.5**2) ** 0.5, rel=1e-7)
        assert second["grad_norm"] == pytest.approx((18.75**2 + 6.8125**2) ** 0.5, rel=1e-7)
        assert [(line["epoch"], line["step"], line["samples"], line["lr"]) for line in (first, second)] == [
            (1, 1, 4, 0.125),
            (2, 2, 4, 0.125),
        ]
        states = {
            case: net_state(Path(plan.run_dir) / case / name / "checkpoints" / "last.ckpt") for case in cases_of(plan)
        }
        weights = {case: [tensor.item() for tensor in state.values()] for case, state in states.items()}
        assert weights["four"] == [0.84375, -0.1640625]
        assert weights["ragged"] == [3.34375, 0.90625]
        assert weights["accumulated"] == pytest.approx([1.9375, 0.375], rel=1e-6)  # 2/3 is no sum of powers of two
