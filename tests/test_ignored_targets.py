"""ignore_index of a module: means are over the targets that count, whatever batches, ranks and steps they are in."""

import csv
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.engine.loaders.source import create_data
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from tests.checkpoints import net_state
from tests.comparing import metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan
from tests.resuming import same_after_kill
from tests.test_user_module import by_both, trained
from tests.user_code.strange_tasks import Pixels, Tokens

FAST = ("precision=64-true", "optimizer=sgd", "optimizer.lr=0.1", "batch_size=8", "accumulate_grad_batches=2")
JOBS = {
    "holes": ("+model.ignore_index=-100", "model=pixels", "data=holes"),
    "padded": ("+model.ignore_index=0", "model=tokens", "data=sequences"),
}
NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any], int]] = {
    "holes": (lambda: Pixels(3), lambda outputs: outputs, -100),
    "padded": (lambda: Tokens(5), lambda outputs: outputs.mT, 0),
}
WORLDS = [
    ("holes", ("ddp",)),
    pytest.param("holes", ("fsdp", "dp", "virtual"), marks=pytest.mark.slow),
    pytest.param("padded", ("ddp", "fsdp"), marks=pytest.mark.slow),
]


def splits_of(plan: Plan) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and targets of each split; of tokens alone all but the last, and all but the first."""
    tensors = [dataset.tensors for dataset in create_data(plan.data, plan.seed).datasets.values()]
    return [each if len(each) == 2 else (each[0][:, :-1].long(), each[0][:, 1:].long()) for each in tensors]


def by_hand(plan: Plan, name: str) -> tuple[nn.Module, float]:
    """A plain loop of steps of two batches, and the mean over the targets of the validation split that count."""
    train, val, _ = splits_of(plan)
    make, logits, ignored = NETS[name]
    torch.manual_seed(plan.seed)
    net = make().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        return F.cross_entropy(logits(net(inputs)), targets, ignore_index=ignored)

    for epoch in range(plan.max_epochs):
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(plan.seed + epoch))
        for ids in torch.split(order, 2 * plan.batch_size):
            optimizer.zero_grad()
            loss(train[0][ids], train[1][ids]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        return net, float(loss(*val))


@pytest.mark.parametrize("name", JOBS)
def test_it_is_the_mean_over_those_that_count(name: str, make_user_plan: MakeUserPlan) -> None:
    """By a plain loop over whole steps; by ranks, with and without callbacks."""
    plan = make_user_plan(*JOBS[name], *FAST)
    folder = trained(plan)
    net, validated = by_hand(plan, name)
    for key, tensor in net_state(folder / "checkpoints" / "last.ckpt").items():
        assert (tensor - net.state_dict()[key.removeprefix("net.")]).abs().max() < 1e-12
    metrics = metrics_in(folder)
    assert metrics["val/loss"] == pytest.approx(validated, abs=1e-12)
    if name == "holes":
        with (folder / "confusion.csv").open() as file:
            counts = sum(int(count) for row in [*csv.reader(file)][1:] for count in row[1:])
        assert counts == int((splits_of(plan)[2][1] != -100).sum())
    else:
        other = trained(make_user_plan(*JOBS[name], *FAST, "model.ignore_index=1", folder="other"))
        assert not compare(folder, other).within_tolerance


@pytest.mark.parametrize(("name", "strategies"), WORLDS, ids=["holes", "holes elsewhere", "padded"])
def test_loops_and_ranks_are_one(name: str, strategies: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    job = (*JOBS[name], *FAST, "gradient_clip_val=0.05")
    single = trained(make_user_plan(*job, folder="single"))
    for strategy in strategies:
        world = (f"strategy={strategy}", "devices=2")
        fast, own = by_both(make_user_plan(*job, *world, folder=strategy))
        require_identical(fast, own)
        require_close(single, own)
        assert {"train/loss", "train/acc", "val/loss", "val/acc", "test/loss"} <= metrics_in(own).keys()
        if strategy == "ddp":
            within = trained(make_user_plan(*job, *world, "callbacks=timer", folder="callbacks"))
            digests = [metrics_in(run)["digest"] for run in (own, within)]
            assert digests[0] == digests[1]


@pytest.mark.slow
def test_killed_within_a_step(make_user_plan: MakeUserPlan) -> None:
    job = (*JOBS["holes"], *FAST, "trainer.val_check_interval=1", "strategy=ddp", "devices=2")
    plan = make_user_plan(*job)
    same_after_kill(plan, 4)
