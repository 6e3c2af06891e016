"""strategy.module=shard: a module that uses its weights anywhere computes what `single` computes, or is refused."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lockstep.base.config_error import ConfigError
from lockstep.base.private_api.torch import complete_dtensors
from lockstep.engine import run
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.compare import compare
from lockstep.strategies.parallel import sharded_module
from lockstep.strategies.parallel.sharded_module import ShardedModule
from lockstep.strategies.parallel.tensor_layout import local_shard, parameters_of
from tests.comparing import require_close
from tests.conftest import IN_PROCESS, MakeUserPlan, require_refused
from tests.rank_helpers import run_named, run_plan, stop_after
from tests.resuming import same_after_kill
from tests.test_strategies_fsdp import furthest
from tests.test_strategies_table import BOUND
from tests.test_strategies_table import furthest as furthest_step

IS_OLD = not hasattr(FSDPModule, "set_reduce_scatter_unused_params")
pytestmark = [*IN_PROCESS, pytest.mark.timeout(900), pytest.mark.skipif(IS_OLD, reason="needs torch 2.13")]

SHARDED = ("strategy=fsdp", "strategy.module=shard", "devices=2")
JOB = ("model=teacher", "data=rows", "record.weights=step", "checkpoint.every_n_steps=1")
FLOAT64, ACCUMULATED = "precision=64-true", ("accumulate_grad_batches=2", "gradient_clip_val=0.3")
BY_VALUE = ("gradient_clip_val=0.01", "trainer.gradient_clip_algorithm=value")


def of(name: str, *words: str) -> tuple[str, ...]:
    return (*JOB, f"model._target_=strange_sharded.{name}", *words)


JOBS = {
    "pupil": of("Pupil", FLOAT64, *ACCUMULATED),
    "clipped by value": of("Pupil", FLOAT64, *BY_VALUE, "engine.fast_loop=false"),
    "experts": of("Experts", FLOAT64),
    "bfloat16": of("Pupil", "precision=bf16-mixed"),
    "teacher": (*JOB, FLOAT64),
}
"""22 samples in batches of 6, the last of 4; a validation of 7, whose last batch is of one sample."""
REFUSED = {
    "Clamping": "Clamping changes head.weight in training_step, where it is gathered and a change is lost",
    "Freezing": "Freezing changes unused.weight in training_step",
    "Validating": "Validating changes slow.0.bias in validation_step",
    "Listing": "Listing keeps head.weight in another place, too, such as a list",
    "Hooked": "Hooked has a hook on the gradient of head.weight",
    "Computing": "a hook computes with weights, which a step or self(…) alone gathers",
    "Factored": "Adafactor computes with rows and columns of full weights",
}
KEPT = "so each rank has all weights and gradients, and a part of the optimizer state"
NOTES = {
    "large": [],
    "outside": [
        f"strategy=fsdp: Outside has weights outside its net, or without dimensions, {KEPT}; "
        "strategy.module=shard divides these, too"
    ],
    "manual": [f"strategy=fsdp: Critic optimizes manually, {KEPT}"],
}
"""What rank 0 writes on stderr."""
STOPPED_AFTER = 3  # batches: a step is under way


def complete_items() -> None:
    """Leave `weight.data = tensor` of a DTensor as torch has it."""
    complete_dtensors()
    del DTensor.data


@contextmanager
def unchecked() -> Iterator[None]:
    """Lose what a step writes into gathered weights."""
    with patch.object(ShardedModule, "_differs", lambda *_: torch.zeros((), dtype=torch.bool)):
        yield


@contextmanager
def measured(folder: str, rank: int) -> Iterator[None]:
    """Write what this rank stores of all weights, gradients and states, as a part, before each step but the first."""

    def count(optimizer: Optimizer, *_: object) -> None:
        weights = parameters_of(optimizer)
        states = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
        if states:
            all_ = sum(weight.numel() for weight in weights)
            [module] = [each for each in gc.get_objects() if isinstance(each, ShardedModule)][-1:]
            parts = {
                "weights": sum(local_shard(weight).numel() for weight in weights) / all_,
                "states": sum(local_shard(state).numel() for state in states) / 2 / all_,
                "gathered": sum(weight.untyped_storage().nbytes() for weight in module.watched if weight.dim()),
            }
            Path(folder, f"stored_{rank}.json").write_text(json.dumps(parts))

    handle = register_optimizer_step_pre_hook(count)
    yield
    handle.remove()


def run_one(name: str, plan: Plan, context: RankContext) -> None:
    """On a rank: run a plan, with what its name asks for."""
    with ExitStack() as planted:
        if name.startswith("lost"):
            planted.enter_context(patch.object(sharded_module, "complete_dtensors", complete_items))
        if name.startswith("teacher"):
            planted.enter_context(unchecked())
        if name in NOTES:
            errors = planted.enter_context(Path(plan.run_dir, f"errors_{context.rank}").open("w"))
            planted.enter_context(redirect_stderr(errors))
        if name == "large":
            planted.enter_context(measured(plan.run_dir, context.rank))
        if name in REFUSED:
            with pytest.raises(ConfigError) as error:
                run(plan, context)
            Path(plan.run_dir, f"refused_{context.rank}").write_text(str(error.value))
            return
        if name.startswith("stopped"):
            plan = stop_after(STOPPED_AFTER, plan, context)
        run_plan(plan, context)


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    """Return the folder of a world that has run."""
    return {}


RunOf = Callable[..., Path]


@pytest.fixture
def run_of(folders: dict[str, Path], make_user_plan: MakeUserPlan, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Return the folder of a run; the first call for a world runs all of it."""

    def start(world: str, jobs: dict[str, tuple[str, ...]], *layout: str) -> None:
        folders[world] = folder = tmp_path_factory.mktemp(world)
        plans = {name: make_user_plan(*layout, *words, folder=f"{world} {name}") for name, words in jobs.items()}
        run_named({name: replace(plan, run_dir=str(folder / name)) for name, plan in plans.items()}, folder, run_one)

    def run_of(world: str, name: str) -> Path:
        if world not in folders and world == "single":
            stopped = run_of("sharded", "stopped") / "checkpoints" / "at-the-stop.ckpt"
            start("single", {**JOBS, "resumed": (*JOBS["pupil"], f"ckpt_path='{stopped}'")}, "strategy=single")
        elif world not in folders and world == "sharded 4":
            start(world, {name: JOBS[name] for name in ("pupil", "experts")}, *SHARDED[:2], "devices=4")
        elif world not in folders:
            files = (*JOBS["pupil"], "checkpoint.sharded=true")
            large = ("model=with_net", "data=blobs_data", "model._target_=strange_with_net.Outside")
            manual = ("model=critic", "data=rows", "strategy.module=auto")
            noted = {"large": large, "outside": (*large, "strategy.module=auto"), "manual": manual}
            jobs = {"lost": JOBS["pupil"], **JOBS, **noted, "stopped": JOBS["pupil"], "stopped in files": files}
            start(world, {**jobs, **{name: of(name, FLOAT64) for name in REFUSED}}, *SHARDED)
        return folders[world] / name

    return run_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "name"),
    [
        *(("sharded", name) for name in ("pupil", "clipped by value", "experts")),
        *(("sharded 4", name) for name in ("pupil", "experts")),
    ],
)
def test_in_float64_it_is_single(world: str, name: str, run_of: RunOf) -> None:
    """Weights of no forward, tied, frozen, not contiguous, without dimensions, unused, and used by one rank alone."""
    comparison = compare(run_of("single", name), run_of(world, name))
    require_close(run_of("single", name), run_of(world, name))
    assert {"gradient norm", "weights saved", "optimizer state", "validation"} <= comparison.quantities.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("single", "name"), [("teacher", "teacher"), ("pupil", "lost")])
def test_a_lost_change_is_not_single(single: str, name: str, run_of: RunOf) -> None:
    """The controls: a step that writes into gathered weights, unchecked; and a hook that does, as torch has it."""
    assert not compare(run_of("single", single), run_of("sharded", name)).within_tolerance


@pytest.mark.slow
def test_in_bfloat16_it_is_near_single(run_of: RunOf) -> None:
    assert furthest_step(run_of("sharded", "bfloat16"), run_of("single", "bfloat16")) < BOUND


@pytest.mark.slow
def test_stopped_within_a_step_it_goes_on_to_the_same_bits(run_of: RunOf) -> None:
    for name in ("stopped", "stopped in files"):
        assert (run_of("sharded", name) / "record.jsonl").read_text() == (
            run_of("sharded", "pupil") / "record.jsonl"
        ).read_text()
    assert furthest(run_of("sharded", "pupil"), run_of("sharded", "stopped")) == 0
    assert 0 < furthest(run_of("single", "pupil"), run_of("single", "resumed")) < 1e-10


@pytest.mark.slow
def test_after_a_kill_too(make_user_plan: MakeUserPlan) -> None:
    same_after_kill(make_user_plan(*JOBS["pupil"], *SHARDED), 3)


@pytest.mark.slow
def test_a_rank_has_its_part_between_steps(run_of: RunOf) -> None:
    for rank in range(2):
        parts = json.loads((run_of("sharded", "large") / f"stored_{rank}.json").read_text())
        assert 0.4 < parts["weights"] < 0.6
        assert 0.4 < parts["states"] < 0.6
        assert parts["gathered"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTES)
def test_a_line_says_what_is_not_divided(name: str, run_of: RunOf) -> None:
    errors = [(run_of("sharded", name) / f"errors_{rank}").read_text().splitlines() for rank in range(2)]
    assert [[line for line in each if line.startswith("strategy=")] for each in errors] == [NOTES[name], []]


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_trained_wrong_is_refused(name: str, run_of: RunOf) -> None:
    for rank in range(2):
        assert REFUSED[name] in (run_of("sharded", name) / f"refused_{rank}").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("model=gan data=blobs_data", "strategy.module=shard: GAN optimizes manually, within steps"),
        (
            "model=with_net data=blobs_data callbacks=ema",
            "may read or change weights, and each rank has a shard of Wit",
        ),
    ],
)
def test_what_the_command_says_is_refused_there(words: str, sentence: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(sentence, make_user_plan, *words.split(), *SHARDED)
