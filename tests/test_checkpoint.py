"""Checkpoints are read with care: what does not fit the plan is refused by either engine, and nothing in it runs."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.checkpoint.content import net_state, state_of
from lockstep.launch import Place
from lockstep.plan import Plan
from lockstep.refusal import Refusal
from tests.ranks import ENGINES

ALONE = Place(rank=0, world_size=1, local_rank=0, local_world_size=1)
MakePlan = Callable[..., Plan]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Lightning takes SIGTERM: give it back."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_names_in_a_checkpoint_and_in_the_net(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    state = state_of(net)
    assert list(state)[:2] == ["net.0.weight", "net.0.bias"]
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    assert net_state(tmp_path / "a.ckpt").keys() == net.state_dict().keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_checkpoints_that_do_not_fit_are_refused(engine: str, make_plan: MakePlan, tmp_path: Path) -> None:
    ENGINES[engine](make_plan("max_epochs=2", "logger=none", "accelerator=cpu", "test=false"), ALONE)
    last, torn, other = tmp_path / "checkpoints" / "last.ckpt", tmp_path / "torn.ckpt", tmp_path / "other.ckpt"
    torn.write_bytes(last.read_bytes()[:1000])
    other.write_text("not a checkpoint")
    cases = [
        ([f"ckpt_path={torn}"], "torn.ckpt: it is no checkpoint"),
        ([f"ckpt_path={other}", "train=false"], "other.ckpt: it is no checkpoint"),
        ([f"ckpt_path={last}", "model.hidden=[7]"], "it holds another net than model=mlp"),
        ([f"ckpt_path={last}", "model=cnn", "train=false"], "it holds another net than model=cnn"),
        ([f"ckpt_path={last}", "optimizer=sgd"], "optimizer=sgd: the checkpoint holds the state of another optimizer"),
        ([f"ckpt_path={last}", "optimizer=adamw"], "of another optimizer; write optimizer=adam."),
        ([f"ckpt_path={last}", "max_epochs=2"], "it has trained for 2 epochs already; write max_epochs=3"),
    ]
    for overrides, sentence in cases:
        with pytest.raises(Refusal) as refusal:
            ENGINES[engine](make_plan("logger=none", "accelerator=cpu", *overrides), ALONE)
        assert sentence in str(refusal.value)
        assert "\n" not in str(refusal.value)


class Hostile:
    """Unpickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_checkpoint_that_would_run_code_does_not(engine: str, make_plan: MakePlan, tmp_path: Path) -> None:
    hostile, mark = tmp_path / "hostile.ckpt", tmp_path / "it-ran"
    torch.save({"state_dict": {}, "epoch": 0, "optimizer_states": [], "extra": Hostile(mark)}, hostile)
    with pytest.raises(Refusal, match="it is no checkpoint"):
        ENGINES[engine](make_plan(f"ckpt_path={hostile}", "logger=none", "accelerator=cpu"), ALONE)
    assert not mark.exists()
    torch.load(hostile, weights_only=False)
    assert mark.exists(), "the file is as hostile as it looks"
