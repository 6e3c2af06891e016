"""Freed memory stays with a rank's process; and a run that is out of memory says what to lower."""

import resource
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lockstep.launch.failure import exit_reason, format_error
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.plan.targets.frames import MEMORY_HINT
from lockstep.runs.run_files import Metrics
from tests.conftest import Command, MakePlan
from tests.rank_helpers import ENGINES, on_ranks

PAGES = 2**24 * 4 // 4096


def faults_after_training(plan: Plan, context: RankContext) -> Metrics:
    ENGINES[plan.engine.name](plan, context)
    for _ in range(10):
        torch.ones(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**24)
    return {"faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before}


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_the_rank_of_either_engine_keeps_them(make_plan: MakePlan) -> None:
    plan = make_plan("data=points", "model.net.hidden=[4]", "max_epochs=1", "logger=none", "threads=1")
    faults = on_ranks(plan, faults_after_training)["faults"]
    assert isinstance(faults, int)
    assert faults < 2 * PAGES


@pytest.mark.parametrize("allocate", [lambda: torch.empty(2**58), lambda: np.empty(2**58)], ids=["torch", "numpy"])
def test_a_failed_allocation_says_what_to_lower(allocate: Callable[[], object]) -> None:
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        allocate()
    *_, error, hint = format_error(raised.value).splitlines()
    assert error.startswith(("RuntimeError: ", "numpy.", "MemoryError"))
    assert hint == f"Memory ran out: {MEMORY_HINT}."
    assert "Traceback" not in format_error(raised.value.with_traceback(None))
    assert MEMORY_HINT not in format_error(RuntimeError("another"))
    assert MEMORY_HINT in exit_reason(-9)


def test_a_net_too_large_for_the_machine_is_refused_in_a_sentence(command: Command) -> None:
    ended = command.train("data=points", "model.net.hidden=[99999999999999]", "logger=none", "accelerator=cpu")
    assert ended.status == 2
    assert ended.err == f"model.net._target_=lockstep.nets.MLP: memory runs out when it is called; {MEMORY_HINT}.\n"
