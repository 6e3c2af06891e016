"""Sharded checkpoints of runs that are killed or stopped: they go on, also in another layout."""

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.launch.failure import RankFailed
from lockstep.runs.compare import compare
from tests.conftest import IN_PROCESS, MakePlan
from tests.fault_injection.command import SMALL, Faulty
from tests.resuming import alike, going_on_with, record, start
from tests.test_checkpoint_shards import HOW
from tests.test_resume import DROPS, MOMENTUM, in_folder
from tests.test_signals import trains, wait_until

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

TODAY = random.Random(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fsdp", "zero1"])
def test_killed_at_random_moments_it_goes_on_bit_for_bit(strategy: str, make_plan: MakePlan, tmp_path: Path) -> None:
    """By SIGKILL of a rank in a step, in the middle of a file, or before it sends its part; dropout and momentum."""
    words = (*DROPS, *MOMENTUM, f"strategy={strategy}", "devices=2", "accelerator=cpu", HOW["sharded"])
    plan = make_plan(*words, "checkpoint.every_n_steps=1")
    expected = start(in_folder(plan, tmp_path / "undisturbed"))
    broken = going_on = in_folder(plan, tmp_path / "killed")
    for moment in ("step", "saving"):
        rank = TODAY.randrange(2)
        most = 40 if (moment, rank) == ("saving", 0) else 2  # parts, of which each save has many; steps or saves
        fault = f"kill@{rank}:{moment}:{TODAY.randint(1, most)}"
        print(fault)
        with pytest.raises(RankFailed, match="SIGKILL"):
            start(going_on, fault)
        going_on = going_on_with(broken)  # no checkpoint is damaged
    alike(start(going_on), expected)
    assert record(broken) == record(replace(plan, run_dir=str(tmp_path / "undisturbed")))


LONG = (
    *(*SMALL, "data.test_size=1000", "max_epochs=2", "model.net.hidden=[64]", "precision=64-true"),
    *("optimizer=adamw", "checkpoint.every_n_steps=3", "test=true"),
)
"""98 steps an epoch."""


@pytest.fixture(scope="module")
def singles(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Return the folders of undisturbed runs of `single`, the second by another seed."""
    folder = tmp_path_factory.mktemp("singles")
    begun = [Faulty(folder / seed, "single", overrides=(*LONG, f"seed={seed}")) for seed in ("1", "2")]
    assert all(single.wait().status == 0 for single in begun)
    return [single.run_dir for single in begun]


@pytest.mark.slow
def test_stopped_by_a_signal_under_fsdp_single_goes_on(singles: Sequence[Path], tmp_path: Path) -> None:
    """In the middle of an epoch. In float64 it is an undisturbed run of `single` to 1e-10, at every step."""
    words = (*LONG, "seed=1", HOW["sharded"])
    stopped = Faulty(tmp_path / "run", "fsdp", overrides=words)
    wait_until(lambda: trains(stopped))
    os.kill(stopped.process.pid, signal.SIGTERM)
    ended = stopped.wait()
    assert ended.status == 128 + signal.SIGTERM, ended.err
    step = stopped.saved_step()
    assert step is not None
    assert 0 < step < 98
    again = Faulty(tmp_path / "again", "single", overrides=(*words, "resume=true"), run=stopped.run_dir)
    ended = again.wait()
    assert ended.status == 0, ended.err
    compared, of_other = (compare(single, stopped.run_dir).quantities for single in singles)
    for name in ("loss", "gradient norm", "validation", "test", "weights saved", "optimizer state"):
        assert compared[name].difference < 1e-10, name  # the verdict is of bits: both end as `single`
        assert of_other[name].difference > 1e-4, name
    assert [compared[name].verdict for name in ("steps", "samples", "sample ids", "position")] == 4 * ["identical"]
