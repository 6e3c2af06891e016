"""Built-in tasks and those of users: the same numbers in both engines and in any world."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.checkpoint.identity import identity
from lockstep.config_error import ConfigError
from lockstep.data.user_data import load
from lockstep.launch.start import start_ranks
from lockstep.plan import Plan
from lockstep.schemas import UserData
from tests import test_user_code
from tests.checkpoints import net_state
from tests.comparing import lines, require_close, require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.test_user_code import trained
from tests.user_code.strange_nets import Residual
from tests.user_code.strange_tasks import Absolute, Coder, Pixels, Tokens, Variational

make_user_plan = test_user_code.make_user_plan

JOBS: dict[str, tuple[str, ...]] = {
    "autoencoding": ("task=autoencoding", "model=mlp", "model.net.hidden=[3]", "data=random_regression", "data.samples=21"),
    "sequences": ("task=language_modelling", "model=tokens", "data=sequences"),
    "masks": ("task=classification", "model=pixels", "data=masks"),
    "absolute": ("task=absolute", "model=residual", "data=sine", "data.samples=30"),
    "variational": ("task=variational", "model=coder", "data=points4"),
}
"""Batches of 8, the last of which leaves a rank with nothing or with another share."""
FAST = ("precision=64-true", "optimizer=sgd", "optimizer.lr=0.1", "batch_size=8")


QUICK, SLOW = ("variational",), ("sequences", "autoencoding", "masks", "absolute")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_engines_and_ranks_agree(name: str, make_user_plan: MakeUserPlan) -> None:
    job = (*JOBS[name], *FAST)
    single = trained(make_user_plan(*job, "engine=raw", folder="raw"))
    require_identical(single, trained(make_user_plan(*job, "engine=lightning", folder="lightning")))
    two = trained(make_user_plan(*job, "engine=lightning", "strategy=ddp", "devices=2", folder="two"))
    require_close(single, two)


@pytest.mark.parametrize("name", ["variational", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_three_replicas_in_one_process_agree(name: str, make_user_plan: MakeUserPlan) -> None:
    job = (*JOBS[name], *FAST, "batch_size=9")
    single = trained(make_user_plan(*job, "engine=raw"))
    for strategy, engine in (("dp", "lightning"), ("virtual", "raw")):
        world = (f"strategy={strategy}", "devices=3", f"engine={engine}")
        require_close(single, trained(make_user_plan(*job, *world, folder=strategy)))


def by_hand(plan: Plan, net: nn.Module, loss_of: Callable[[Any, Tensor, Tensor], Tensor]) -> float:
    """What a plain loop makes of the net under the contract's order; the last epoch's mean loss over samples."""
    assert isinstance(plan.data, UserData)
    train: Any = load(plan.data, plan.seed, plan.task.samples).train
    optimizer, total = torch.optim.SGD(net.parameters(), lr=0.1), 0.0
    for epoch in range(plan.max_epochs):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(plan.seed + epoch))
        losses = []
        for ids in torch.split(order, plan.batch_size):
            inputs = train.inputs[ids]
            inputs = inputs.double() if inputs.is_floating_point() else inputs
            targets = train.targets[ids]
            loss = torch.stack(
                [loss_of(net(one[None]), one, target) for one, target in zip(inputs, targets, strict=True)]
            )
            optimizer.zero_grad()
            loss.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses += loss.tolist()
        total = sum(losses) / len(losses)
    return total


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor, Tensor], Tensor]]] = {
    "sequences": (lambda: Tokens(5), lambda outputs, _input, target: F.cross_entropy(outputs[0], target)),
    "masks": (lambda: Pixels(3), lambda outputs, _input, target: F.cross_entropy(outputs, target[None])),
    "variational": (Coder, lambda outputs, inputs, _target: Variational().double().loss(outputs, inputs[None])),
}


@pytest.mark.parametrize("name", NETS)
def test_a_plain_loop_over_single_samples_computes_the_same(name: str, make_user_plan: MakeUserPlan) -> None:
    """Each sample alone through the net: so a batch's mean is over samples, ragged or not."""
    plan = make_user_plan(*JOBS[name], *FAST, "engine=raw")
    folder = trained(plan)
    make, loss_of = NETS[name]
    torch.manual_seed(plan.seed)
    net = make().double()
    loss = by_hand(plan, net, loss_of)
    for key, tensor in net_state(folder / "checkpoints" / "last.ckpt").items():
        assert (tensor - net.state_dict()[key]).abs().max() < 1e-10
    steps = [step for step in lines(folder, "step") if step["epoch"] == plan.max_epochs]
    mean = sum(step["loss_sum"] for step in steps) / sum(step["samples"] for step in steps)
    assert mean == pytest.approx(loss, abs=1e-10)


def test_a_loss_of_torch_itself_and_its_reductions(make_user_plan: MakeUserPlan) -> None:
    """By its path alone, typed on the command line; a sum is told from a mean by its `reduction`."""
    job = ("model=residual", "data=sine", *FAST, "engine=raw", "+task._target_=torch.nn.HuberLoss")
    mean = trained(make_user_plan(*job, folder="mean"))
    summed = trained(make_user_plan(*job, "+task.reduction=sum", folder="sum"))
    first, second = (net_state(folder / "checkpoints" / "last.ckpt") for folder in (mean, summed))
    assert all((first[name] - second[name]).abs().max() < 1e-12 for name in first)


def test_the_state_of_a_task_is_of_one_run(make_user_plan: MakeUserPlan) -> None:
    """Of two in the same process, too."""
    job = ("model=residual", "data=sine", "engine=raw", "+task._target_=strange_tasks.Counting")
    plans = [make_user_plan(*job, "strategy.in_process=true", folder=name) for name in ("first", "second")]
    first, second = ((trained(plan) / "record.jsonl").read_text().splitlines() for plan in plans)
    assert first[1:] == second[1:]


def test_a_default_task_is_not_in_the_identity(make_user_plan: MakeUserPlan) -> None:
    """Another task is another training; null is an option that a task does not have."""
    tasks = ("auto", "classification", "autoencoding")
    plans = [make_user_plan("data=digits", f"task={task}", folder=task) for task in tasks]
    default, named, other = (
        {key: value for key, value in identity(plan, False).items() if value is not None} for plan in plans
    )
    assert "task" not in default
    assert named == default
    assert other == {**default, "task": "autoencoding", "data.sums": ["loss", "samples"]}


INVALID = {
    "task=regression data=digits": "task=regression: the targets of data=digits are classes, not real numbers; write",
    "task=language_modelling data=digits": "data=digits has no sequences of tokens; write data=text.",
    "task=language_modelling data=sequences": "model=mlp: it has one row of outputs per sample, and data=sequences has",
    "data=masks": "has several targets per sample; write model=char_rnn task=language_modelling for a text, or",
    "data=points4": "data: a batch of it is (Tensor (1, 4)), and a plain net is trained on tensors; write a",
    "data=sine +task._target_=strange_tasks.NoLoss": "a NoLoss has no loss; write an object with loss(outputs,",
    "data=sine +task._target_=strange_tasks.WrongMetric +task.within=1": "it has no metric far to monitor; write one",
    "data=sine +task._target_=torch.nn.Linear +task.in_features=1 +task.out_features=1": "only the net is trained;",
}


@pytest.mark.parametrize("words", INVALID)
def test_tasks_that_do_not_fit_are_rejected(words: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(INVALID[words], make_user_plan, *words.split())


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ("data=points4", "model=coder", "task=autoencoding"),
            "this returns a dict, but the task expects (batch, …) with",
        ),
        (
            ("data=sine", "model=residual", "+task._target_=strange_tasks.odd_shape", "+task._partial_=true"),
            "its loss of 12 samples has the shape (12, 1); write one that returns a mean over samples, or a number",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_rejected(
    overrides: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        trained(make_user_plan(*overrides, "engine=raw"))


def test_the_metrics_of_a_users_task_are_those_of_all_samples(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*JOBS["absolute"], *FAST, "engine=raw", "strategy=ddp", "devices=2", "max_epochs=1")
    measured = start_ranks(plan, "lockstep.raw")
    assert isinstance(plan.data, UserData)
    test: Any = load(plan.data, plan.seed, "any").test
    net = Residual((1,), 1, 8).double()
    net.load_state_dict(net_state(Path(plan.run_dir) / "checkpoints" / "last.ckpt"))
    task, outputs, wanted = Absolute(0.3), net(test.inputs.double()), test.targets.double()
    assert measured["test/close"] == pytest.approx(task.close(outputs, wanted).item(), abs=1e-12)
    assert measured["test/largest"] == pytest.approx((outputs - wanted).abs().mean().item(), abs=1e-12)
