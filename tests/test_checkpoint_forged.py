"""A checkpoint that unpacks and holds anything: refused in one sentence, or gone on from; by both engines."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.checkpoint.content import OWN
from lockstep.checkpoint.reading import check_checkpoint
from lockstep.config_error import ConfigError
from lockstep.launch import RankContext
from lockstep.plan import Plan
from tests.conftest import MakePlan
from tests.rank_helpers import ENGINES

ALONE = RankContext(rank=0, world_size=1, local_rank=0, local_world_size=1)
SMALL = (
    *("data=points", "model.hidden=[4]", "batch_size=1", "accumulate_grad_batches=2", "scheduler=onecycle"),
    *("logger=none", "accelerator=cpu", "threads=1", "checkpoint.every_n_steps=1", "max_epochs=2"),
)
OTHERS: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        3,
        2**40,
        2**70,
        0.5,
        float("nan"),
        float("inf"),
        -1e300,
        "x",
        b"x",
        [],
        [1],
        {},
        {"x": 1},
        (1, 2),
    ),
    *(torch.zeros(0), torch.zeros(3), torch.full((3,), float("nan"), dtype=torch.float64), torch.zeros(2, 2)),
    *(torch.tensor(2**62), torch.ones(3, dtype=torch.complex64), torch.zeros(3).to_sparse()),
]
"""What is put in place of a leaf."""

GONE = object()

Step = str | int
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def leaves(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """The paths to everything within, containers too; of a long list its ends alone."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, own in value.items():
            yield from leaves(own, (*path, key))
    elif isinstance(value, list | tuple):
        for index in {0, 1, len(value) - 1} & {*range(len(value))}:
            yield from leaves(value[index], (*path, index))


def forged(value: Any, path: tuple[Step, ...], other: Any) -> Any:
    """The same with something else at a path."""
    first, *rest = path
    own: Any = list(value) if isinstance(value, tuple) else copy.copy(value)
    if rest:
        own[first] = forged(own[first], tuple(rest), other)
    elif other is GONE:
        del own[first]
    else:
        own[first] = other
    return tuple(own) if isinstance(value, tuple) else own


@pytest.fixture
def real(make_plan: MakePlan, tmp_path: Path) -> dict[str, Any]:
    """A checkpoint from within an epoch, with a gradient of the step under way."""
    ENGINES["raw"](make_plan(*SMALL), ALONE)
    path = tmp_path / "checkpoints" / "previous.ckpt"
    checkpoint: dict[str, Any] = torch.load(path, weights_only=True)
    assert checkpoint[OWN]["position"]["batch"] > 0
    checkpoint[OWN]["ranks"][0]["gradients"] = {"layers.0.bias": torch.zeros(4)}
    return checkpoint


def end_of(engine: str, plan: Plan) -> str:
    """How going on from the plan's checkpoint ends."""
    sentence = ""
    try:
        check_checkpoint(plan)
        ENGINES[engine](plan, ALONE)
    except ConfigError as raised:
        sentence = str(raised)
    assert "\n" not in sentence
    return "refused" if sentence else "trained"


FORGED = [
    (("optimizer_states", 0, "state", 0, "exp_avg"), torch.zeros(7)),
    (("optimizer_states", 0, "state", 0, "step"), torch.tensor(float("nan"))),
    (("optimizer_states", 0, "state"), {}),
    (("optimizer_states", 0, "param_groups", 0, "betas"), (0.9, float("nan"))),
    (("optimizer_states", 0, "param_groups", 0, "params"), [0, 1]),
    (("lr_schedulers",), [3]),
    (("lr_schedulers",), []),
    (("lr_schedulers", 0, "last_epoch"), -5),
    (("lr_schedulers", 0, "base_lrs"), [float("inf")]),
    (("state_dict", "net.layers.0.weight"), "x"),
    (("state_dict", "net.layers.0.weight"), torch.zeros(4, 2, dtype=torch.int64)),
    ((OWN, "position", "batch"), 7),
    ((OWN, "position", "epochs"), -1),
    ((OWN, "position", "steps"), 2**40),
    ((OWN, "record"), 1.5),
    ((OWN, "results"), {"val/loss": "x"}),
    ((OWN, "best"), (1, 2)),
    ((OWN, "ranks"), []),
    ((OWN, "ranks", 0, "sums", "epoch"), torch.full((3,), float("nan"), dtype=torch.float64)),
    ((OWN, "ranks", 0, "sums", "window"), torch.zeros(2, dtype=torch.float64)),
    ((OWN, "ranks", 0, "gradients", "layers.0.bias"), torch.zeros(5)),
    ((OWN, "ranks", 0, "random", "numpy", 2), 10**9),
    ((OWN, "ranks", 0, "random", "torch"), torch.zeros(5, dtype=torch.uint8)),
    ((OWN, "identity"), {"seed": torch.zeros(3)}),
]


def test_a_forged_part_is_refused_by_either_engine(real: dict[str, Any], make_plan: MakePlan, tmp_path: Path) -> None:
    path = tmp_path / "forged.ckpt"
    torch.save(real, path)
    plan = make_plan(*SMALL, f"ckpt_path={path}")
    assert [end_of(engine, plan) for engine in ENGINES] == ["trained", "trained"]
    for own, other in FORGED:
        torch.save(forged(real, own, other), path)
        for engine in ENGINES:
            assert end_of(engine, plan) == "refused", (own, other, engine)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_stands_in_one_place_is_refused_or_trained_on(
    real: dict[str, Any], make_plan: MakePlan, tmp_path: Path
) -> None:
    """Every place × some values, drawn by a fixed seed."""
    path, chance = tmp_path / "forged.ckpt", random.Random(0)
    torch.save(real, path)
    plan = make_plan(*SMALL, f"ckpt_path={path}")
    ends = {"refused": 0, "trained": 0}
    for own in leaves(real):
        for other in [GONE, *chance.sample(OTHERS, 4)]:
            torch.save(forged(real, own, other), path)
            engine = chance.choice(list(ENGINES))
            try:
                ends[end_of(engine, plan)] += 1
            except Exception as error:
                pytest.fail(f"{own} = {other} by {engine}: {error!r}")
    assert ends["refused"] > 10 * ends["trained"] > 0, ends
