"""`run` in a process group that a program has formed, as Ray Train does: it trains in that group, and leaves it."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lockstep import ConfigError, run
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import METRICS, Metrics
from tests.conftest import Command, MakePlan, free_port
from tests.fault_injection.command import SMALL, leaves
from tests.rank_helpers import on_ranks

DDP = (
    "strategy=ddp",
    "devices=2",
    "logger=none",
    *(word for word in SMALL if not word.startswith(("model", "checkpoint"))),
)

PROGRAM = """
import json, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import torch
import torch.distributed as dist
from lockstep.models import Classifier

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))

    def forward(self, images):
        if os.environ.get("FAULT") and dist.is_initialized() and dist.get_rank() == 1:
            raise ZeroDivisionError("on purpose")
        return self.layers(images)

class Module(Classifier):
    def __init__(self):
        super().__init__(Net(), partial(torch.optim.Adam, lr=0.001), num_classes=10)

def train(words):
    from lockstep import run
    return run(words, model=Module)

def work(rank, port, words):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    with ThreadPoolExecutor() as pool:  # Ray Train calls it in a thread
        metrics = pool.submit(train, words).result()
    total = torch.ones(1)
    dist.all_reduce(total)
    sys.stdout.write(f"RANK {rank} {metrics['digest']} {int(total)}\\n")  # at once: both ranks write here

if __name__ == "__main__":
    port, *words = sys.argv[1:]
    if port == "0":
        train(words)
    else:
        torch.multiprocessing.spawn(work, (port, words), nprocs=2)
"""


def train_in_the_group(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: train in the process group of the launcher, without torchrun's variables."""
    for name in context.variables:
        os.environ.pop(name)
    assert rank_from_env() == context
    before = dict(os.environ), torch.get_num_threads()
    for words, sentence in ((["devices=4", "batch_size=8"], "devices=4: 2 proc"), (["strategy=single"], "strategy=si")):
        with pytest.raises(ConfigError, match=sentence):
            run([*DDP, "model=linear", *words])
    words = [*DDP, "model=linear", "max_epochs=1"]
    run([*words, f"hydra.run.dir={plan.run_dir}/first"])
    metrics = run([*words, f"hydra.run.dir={plan.run_dir}/second_${{now:%f}}"])  # the store of the group stays, too
    folders: list[Path | None] = [None, None]
    dist.all_gather_object(folders, metrics.folder)
    assert folders[0] == folders[1], "the folder of rank 0"
    assert (dict(os.environ), torch.get_num_threads()) == before
    total = torch.ones(1)
    dist.all_reduce(total)
    return {"digest": metrics["digest"], "ranks": int(total)}


def test_it_trains_in_the_group_as_in_a_new_one(make_plan: MakePlan, tmp_path: Path) -> None:
    result = on_ranks(make_plan("strategy=ddp", "devices=2"), train_in_the_group)
    run([*DDP, "model=linear", "max_epochs=1", f"hydra.run.dir={tmp_path / 'alone'}"])
    assert result["ranks"] == 2
    expected = leaves(tmp_path / "alone")
    assert result["digest"] == expected[0]
    [second] = tmp_path.glob("second_*")
    assert leaves(tmp_path / "first") == leaves(second) == expected


@pytest.mark.slow
def test_a_program_that_spawns_ranks(command: Command) -> None:
    """By both engines, with a class of the program, in a thread; a rank's failure is raised there."""
    (command.folder / "program.py").write_text(PROGRAM)
    words = [*DDP, "engine=both"]
    ended = command.fresh(sys.executable, "program.py", str(free_port()), *words, "hydra.run.dir=inside")
    assert ended.status == 0, ended.err
    alone = command.fresh(sys.executable, "program.py", "0", *words, "hydra.run.dir=alone")
    assert alone.status == 0, alone.err
    digests = [json.loads((command.folder / name / METRICS).read_text())["digest"] for name in ("inside", "alone")]
    assert digests[0] == digests[1]
    for rank in (0, 1):
        assert f"RANK {rank} {digests[0]} 2" in ended.out
    for engine in ("lightning", "raw"):
        assert leaves(command.folder / "inside" / engine) == leaves(command.folder / "alone" / engine)
    failed = command.fresh(sys.executable, "program.py", str(free_port()), *words, FAULT="1")
    assert failed.status == 1
    assert "RankFailed: rank 1 failed: " in failed.err
    assert failed.err.count("ZeroDivisionError: on purpose") == 1, failed.err
