"""A training_step that returns {"loss": …, "weight": n}: gradients are of the mean over what counts, in every world."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.base.config_error import ConfigError
from tests.checkpoints import net_state
from tests.comparing import lines, metrics_in, require_identical
from tests.conftest import MakeUserPlan
from tests.resuming import killed
from tests.test_user_module import DDP, SINGLE, VIRTUAL, by_both, trained

JOB = ("model=masked", "data=sentences_data", "precision=64-true", "accumulate_grad_batches=3", "max_epochs=2")
CLIPPED = ("gradient_clip_val=0.05",)
WORLDS = {
    "ddp": (*DDP, *CLIPPED),
    "virtual": (*VIRTUAL, *CLIPPED),
    "fsdp": ("strategy=fsdp", "devices=2", *CLIPPED),
}


def by_hand(clip: float | None = None) -> tuple[dict[str, torch.Tensor], list[float]]:
    """A plain loop, one batch for each optimizer step; returns weights and losses."""
    import strange_masked  # type: ignore[import-not-found]

    torch.manual_seed(0)
    module: Any = strange_masked.MaskedModel().double()
    optimizer, tokens, losses = module.configure_optimizers(), strange_masked.sentences(37), []
    for epoch in range(2):
        order = torch.randperm(37, generator=torch.Generator().manual_seed(epoch))
        for ids in torch.split(order, 18):
            optimizer.zero_grad()
            loss, count = module.mean_loss(tokens[ids])
            loss.backward()  # zeros if no token counts, though the loss is NaN
            losses += [loss.item()] if count else []
            if clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
    return module.state_dict(), losses


def largest_difference(folder: Path, weights: dict[str, torch.Tensor]) -> float:
    saved = net_state(folder / "checkpoints" / "last.ckpt")
    return max(float((tensor - saved[name]).abs().max()) for name, tensor in weights.items())


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in WORLDS if name != "ddp"]


@pytest.mark.parametrize("name", ["ddp", *SLOW])
def test_every_world_is_a_plain_loop(name: str, make_user_plan: MakeUserPlan) -> None:
    runs = by_both(make_user_plan(*JOB, *WORLDS[name], "seed=0"))
    require_identical(*runs)
    weights, losses = by_hand(clip=0.05)
    assert largest_difference(runs[1], weights) < 1e-12
    steps = [line["loss_sum"] / line["samples"] for line in lines(runs[1], "step") if line["loss_sum"]]
    assert steps == pytest.approx(losses, rel=1e-12)
    metrics = metrics_in(runs[1])
    assert metrics["train/loss"] == pytest.approx(metrics["masked"], rel=1e-6)


@pytest.mark.slow
def test_without_a_weight_it_is_another_mean(make_user_plan: MakeUserPlan) -> None:
    """The control; and one process with the weight, without clipping."""
    single = by_both(make_user_plan(*JOB, *SINGLE, "seed=0", folder="single"))
    require_identical(*single)
    weights, _ = by_hand()
    assert largest_difference(single[1], weights) < 1e-12
    never = trained(make_user_plan(*JOB, *DDP, "seed=0", "+model.weight=never", folder="never"))
    assert largest_difference(never, weights) > 1e-3


@pytest.mark.slow
def test_a_window_is_resumed_in_another_world(make_user_plan: MakeUserPlan) -> None:
    """After four batches on two ranks, which is within the second window of three, in one process."""
    job = (*JOB, "max_epochs=1", "trainer.val_check_interval=2")
    whole = trained(make_user_plan(*job, *SINGLE, folder="whole"))
    last = killed(make_user_plan(*job, *DDP, folder="killed"), 2).ckpt_path
    assert torch.load(str(last), weights_only=True)["lockstep"]["position"]["batch"] == 4
    resumed = trained(make_user_plan(*job, *SINGLE, f"ckpt_path={last}", folder="resumed"))
    assert largest_difference(resumed, net_state(whole / "checkpoints" / "last.ckpt")) < 1e-12


REFUSED = {
    "+model.weight=later": "model=MaskedModel: its training_step returns a weight in some steps alone; write one that",
    "+model.weight=negative": "model=MaskedModel: its training_step returns the weight -",
    "loss_reduction=sum": "loss_reduction=sum: training_step returns the weight of a mean; write loss_reduction=mean.",
}


@pytest.mark.parametrize("override", REFUSED)
def test_weights_that_are_refused(override: str, make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*JOB, *SINGLE, override))
    assert str(refused.value).startswith(REFUSED[override])
