"""Rounding noise that an optimizer scales up is named as the reason of a difference, and nothing else is."""

import math
from pathlib import Path

import pytest
import torch

import lockstep
from lockstep.runs.compare import compare
from tests.test_compare import SMALL, first_of


class Dense(torch.nn.Module):
    """A bias and weights of constant pixels in front of BatchNorm, as in many published nets."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        first, last = torch.nn.Linear(math.prod(sample_shape), 16), torch.nn.Linear(16, num_outputs)
        self.net = torch.nn.Sequential(first, torch.nn.BatchNorm1d(16), torch.nn.ReLU(), last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.net(x.flatten(1))
        return y


NOISE = {"64-true": "1e-12", "32-true": "1e-05"}


@pytest.mark.parametrize("precision", NOISE)
def test_noise_that_adam_scales_up_is_named(precision: str, tmp_path: Path) -> None:
    """The black pixels of digits are constant. A difference in other gradients has another reason."""
    job = ("model=linear", "++model.net._target_=tests.test_compare_noise.Dense", "sync_batchnorm=true", *SMALL)
    long = precision == "64-true"  # in float32 the first three steps are compared
    length = ("max_epochs=12", "optimizer.lr=0.05") if long else ("trainer.max_steps=3",)
    for strategy, devices in (("single", 1), ("ddp", 2)):
        world = (f"strategy={strategy}", f"devices={devices}", f"hydra.run.dir={tmp_path / strategy}")
        lockstep.run([*job, f"precision={precision}", *length, *world])
    runs = tmp_path / "single", tmp_path / "ddp"
    comparison = compare(*runs)
    expected = {"weights saved", "validation", "test", *(() if long else ("loss", "gradient norm"))}
    assert first_of(comparison)[0] in expected, "which comes first depends on the processor"
    noise = f"zero except for rounding noise (below {NOISE[precision]} of the largest), which the optimizer"
    assert noise in str(comparison.likely)
    assert compare(*runs, 0.0).likely is None
    paths = [run / "checkpoints" / "last.ckpt" for run in runs]
    state = torch.load(paths[1], weights_only=True)
    state["optimizer_states"][0]["state"][4]["exp_avg_sq"] *= 1 + 1e-8 if long else 1.1
    torch.save(state, paths[1])
    assert compare(*runs).likely is None, "another gradient differs"
    state["optimizer_states"] = torch.load(paths[0], weights_only=True)["optimizer_states"]
    torch.save(state, paths[1])
    assert compare(*runs).likely is None, "the noise is the same"
