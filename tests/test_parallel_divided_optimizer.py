"""strategy=fsdp with LightningModules: DDP averages gradients, and each rank updates and stores its own parameters."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, Adafactor, Adagrad, Adam, Optimizer

from lockstep.base.optimizers import needs_no_closure
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer
from tests.checkpoints import net_state
from tests.comparing import lines, require_close
from tests.conftest import MakePlan, MakeUserPlan
from tests.rank_helpers import on_ranks
from tests.resuming import same_after_kill
from tests.test_user_module import SINGLE, trained

TWO, THREE = ("strategy=fsdp", "devices=2"), ("strategy=fsdp", "devices=3")
TEACHER, CRITIC = ("model=teacher", "data=rows"), ("model=critic", "data=rows")
ACCUMULATED = ("accumulate_grad_batches=2", "gradient_clip_val=0.3")


class Clipped(Adagrad):
    """Steps by the norm of all gradients, which a rank that sees some of them would not know."""

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        loss = closure()
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.01)
        super().step()
        return loss


def train(net: nn.Module, optimizer: Optimizer, steps: int) -> None:
    def closure() -> float:
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4)).square().sum()
        loss.backward()
        value: float = loss.item()
        return value

    for _ in range(steps):
        optimizer.step(closure)
        assert all(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def train_divided_and_undivided(plan: Plan, context: RankContext) -> Metrics:
    """Compare optimizers that are divided over ranks with such as are not."""
    create: list[Callable[..., Optimizer]] = [Adam, Adagrad, Adafactor, LBFGS, Clipped]
    for kind in create:
        torch.manual_seed(0)
        nets = [nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)) for _ in range(3)]
        optimizers = [kind(net[0].parameters()) for net in nets]
        undivided, divided, resumed = optimizers
        nets[1].load_state_dict(nets[0].state_dict())
        for each in (divided, resumed):
            if needs_no_closure(each):
                DividedOptimizer(each)
        for net, optimizer in zip(nets[:2], optimizers, strict=False):
            train(net, optimizer, 2)
        if kind is not LBFGS:  # as a callback adds a group
            for net, optimizer in zip(nets, optimizers, strict=True):
                optimizer.add_param_group({"params": [*net[1].parameters()], "weight_decay": 0.1})
        for net, optimizer in zip(nets[:2], optimizers, strict=False):
            train(net, optimizer, 2)
        saved, expected = divided.state_dict(), copy.deepcopy(undivided.state_dict())
        if context.rank == 0:
            torch.testing.assert_close(saved, expected, rtol=0, atol=0)
        nets[2].load_state_dict(nets[1].state_dict())
        resumed.load_state_dict(expected)
        for net, optimizer in zip(nets, optimizers, strict=True):
            train(net, optimizer, 1)
            torch.testing.assert_close(net.state_dict(), nets[0].state_dict(), rtol=0, atol=0)
        if kind in (Adam, Adafactor):  # Adagrad creates all states before
            sizes = [sum(parameter.numel() for parameter in optimizer.state) for optimizer in (divided, resumed)]
            assert sizes == ([20 + 3] * 2 if context.rank == 0 else [5 + 15] * 2)
    used, unused = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = Adam([used, unused])
    optimizer.state["shared"]["calls"] = 3  # type: ignore[index]  # as some optimizers count
    DividedOptimizer(optimizer)
    used.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert (used._version, unused._version) == (2 - context.rank, 0)  # autograd raises if a saved weight has changed
    assert optimizer.state_dict()["state"]["shared"] == {"calls": 3}
    return {}


def test_divided_optimizers_compute_the_same(make_plan: MakePlan) -> None:
    """Bit for bit, with a group that is added later, and after loading a checkpoint."""
    on_ranks(make_plan("strategy=ddp", "devices=2", "data=line", "model=regression"), train_divided_and_undivided)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        pytest.param((*TEACHER, *ACCUMULATED, "callbacks=[ema]", "callbacks.ema.decay=0.5"), THREE, id="teacher"),
        pytest.param(CRITIC, TWO, id="critic"),
    ],
)
def test_in_float64_it_is_single(job: tuple[str, ...], ranks: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """Each rank has other optimizer states; another seed gives another run."""
    job = (*job, "precision=64-true")
    single = trained(make_user_plan(*job, *SINGLE, folder="single"))
    divided = trained(make_user_plan(*job, *ranks, folder="divided"))
    require_close(single, divided)
    if ranks == THREE:
        other = trained(make_user_plan(*job, "seed=1", *SINGLE, folder="other"))
        assert not compare(divided, other).within_tolerance
    fingerprints = lines(divided, "fingerprint")
    assert all(len({*line["weights"]}) == 1 and len({*line["optimizer"]}) > 1 for line in fingerprints)


@pytest.mark.slow
@pytest.mark.parametrize("job", [(*TEACHER, *ACCUMULATED), CRITIC])
def test_killed_in_a_step_it_ends_the_same(job: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*job, *TWO, "checkpoint.every_n_steps=1", "max_epochs=3")
    same_after_kill(plan, 4)


@pytest.mark.slow
def test_checkpoints_resume_under_other_strategies(make_user_plan: MakeUserPlan) -> None:
    job = (*TEACHER, "precision=64-true")
    uninterrupted = trained(make_user_plan(*job, *SINGLE, folder="uninterrupted"))
    for name, first, second in (("from single", SINGLE, TWO), ("from fsdp", TWO, SINGLE)):
        begun = trained(make_user_plan(*job, *first, "max_epochs=1", folder=f"{name}, begun"))
        path = f"ckpt_path='{begun / 'checkpoints' / 'last.ckpt'}'"
        ended = trained(make_user_plan(*job, *second, path, folder=name))
        expected, resumed = (net_state(run / "checkpoints" / "last.ckpt") for run in (uninterrupted, ended))
        for key, tensor in expected.items():
            torch.testing.assert_close(resumed[key], tensor, rtol=0, atol=1e-10)
