"""What ranks send: tensors and messages of any size, and how many of them a step and an epoch need."""

from functools import cache
from typing import Any

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.base.messages import all_gather_json, gather_bytes
from lockstep.engine import run
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks, wrong_on


def messages_of_any_length(rank: int, world: int) -> list[str]:
    messages = [b"", b"\x00\xff" * 5000, b"one\x00"][:world]
    wrong = [] if gather_bytes(messages[rank]) == (messages if rank == 0 else []) else ["gather"]
    return wrong + ([] if gather_bytes(messages[rank], to_all=True) == messages else ["all_gather"])


def calls_of_two_kinds(rank: int, world: int) -> list[str]:
    """As where one rank gathers tensors in an evaluation, and the others, without samples, are at its end already."""
    try:
        return [str(all_gather_json("(2, 4)" if rank == 0 else []))]
    except ConfigError:
        return []


CHECKS = [messages_of_any_length, calls_of_two_kinds]


results_on = cache(lambda devices: wrong_on(devices, *CHECKS))


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_messages(check: str) -> None:
    assert results_on(3)[check] == ""


def counted(plan: Plan, context: RankContext) -> Metrics:
    """Run the plan; torch's profiler sees also the collectives that C++ calls."""
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        run(plan, context)
    return {"calls": sum(event.name == "c10d::allreduce_" for event in profiler.function_events)}


@pytest.mark.slow
def test_one_all_reduce_a_step_and_none_an_epoch(make_plan: MakePlan) -> None:
    """The gradients of this net fit in one bucket. 1,257 digits are 4 batches of 320, or 8 of 160."""
    calls = []
    for words in (
        ("max_epochs=1", "batch_size=320"),
        ("max_epochs=1", "batch_size=160"),
        ("max_epochs=2", "batch_size=320"),
    ):
        shared = ("strategy=ddp", "devices=2", "accelerator=cpu", "model=mlp", "logger=none", "test=false")
        calls.append(int(on_ranks(make_plan(*shared, *words), counted)["calls"]))
    few, many, twice = calls
    assert (many - few, twice - few) == (4, 4), "an epoch's values come by one all-gather"
