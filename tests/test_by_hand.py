"""The linear net on small integers: losses, gradients and steps written out, asserted with == on two ranks.

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

from pathlib import Path

import pytest
import torch

from lockstep.datamodules.tensors import InMemory, Split
from lockstep.nets import Linear
from tests.checkpoints import net_state
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ENGINES, run_plans, with_engine

pytestmark = IN_PROCESS
SEED = 7
"""Orders three samples 0 1 2."""

FOUR = [(1.0, 2.0), (2.0, 3.0), (3.0, 7.0), (4.0, 9.0)]


class Integers(InMemory):
    """The first of FOUR."""

    sample_shape, num_outputs = (1,), 1

    def __init__(self, batch_size: int, samples: int) -> None:
        super().__init__(batch_size)
        self.samples = samples

    def load(self) -> dict[str, Split]:
        x, y = torch.tensor(FOUR[: self.samples]).T[:, :, None]
        return {"train": (x, y), "test": (x, y)}


class FromOneAndZero(Linear):
    """y = 1 x + 0."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(sample_shape, num_outputs)
        torch.nn.init.ones_(self.affine.weight)
        torch.nn.init.zeros_(self.affine.bias)


REGRESSION = [
    *("model=regression", f"model.net._target_={__name__}.FromOneAndZero", "data=points", "data.samples=4"),
    *(f"data._target_={__name__}.Integers", "batch_size=4", "optimizer=sgd", "optimizer.lr=0.125"),
    *("max_epochs=2", "logger=none", "accelerator=cpu", "threads=1"),
]
RAGGED = ("max_epochs=1", "batch_size=2", f"seed={SEED}", "data.samples=3")
CASES = {
    "four": (),
    "ragged": RAGGED,
    "accumulated": (*RAGGED, "accumulate_grad_batches=2", f"optimizer.lr={3 / 32}"),
}
"""Two epochs of four samples; one of three in batches of two, and the same in one step."""


def test_steps_on_integers(make_plan: MakePlan) -> None:
    """The first three samples in batches of two: the second batch is (3, 7) alone, on rank 0.

    step 1: errors -1 -1; dL/dw = 2/2 · (-1 - 2) = -3, dL/db = -2     w ← 1.375, b ← 0.25
    step 2: error 1.375·3 + 0.25 - 7 = -2.625; dL/dw = 2/1 · -2.625 · 3 = -15.75, dL/db = -5.25
                                                                       w ← 3.34375, b ← 0.90625
    accumulated, one step of three samples: errors -1 -1 -4, with lr 3/32 so that 2/3 · 3/32 = 1/16:
        dL/dw · lr = 1/16 · (-1 - 2 - 12) = -0.9375, dL/db · lr = 1/16 · -6 = -0.375     w ← 1.9375, b ← 0.375
    """
    assert torch.randperm(3, generator=torch.Generator().manual_seed(SEED)).tolist() == [0, 1, 2]
    plans = {case: make_plan(*REGRESSION, "strategy=ddp", "devices=2", *words) for case, words in CASES.items()}
    folder = Path(plans["four"].run_dir)
    run_plans(
        [with_engine(plan, name, folder / case / name) for case, plan in plans.items() for name in ENGINES], folder
    )
    for name in ENGINES:
        first, second = lines(folder / "four" / name, "step")
        assert (first["loss_sum"], second["loss_sum"]) == (43.0, 50.2734375)
        assert first["grad_norm"] == pytest.approx((17.5**2 + 5.5**2) ** 0.5, rel=1e-7)
        assert second["grad_norm"] == pytest.approx((18.75**2 + 6.8125**2) ** 0.5, rel=1e-7)
        assert [(line["epoch"], line["step"], line["samples"], line["lr"]) for line in (first, second)] == [
            (1, 1, 4, 0.125),
            (2, 2, 4, 0.125),
        ]
        states = {case: net_state(folder / case / name / "checkpoints" / "last.ckpt") for case in CASES}
        weights = {case: [tensor.item() for tensor in state.values()] for case, state in states.items()}
        assert weights["four"] == [0.84375, -0.1640625]
        assert weights["ragged"] == [3.34375, 0.90625]
        assert weights["accumulated"] == pytest.approx([1.9375, 0.375], rel=1e-6)  # 2/3 is no sum of powers of two
