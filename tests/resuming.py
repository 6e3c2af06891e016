"""Runs that are killed in a step and resumed, as tests of modules, schedules and callbacks compare them."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.files import newest_checkpoint
from lockstep.runs.checkpoint.reading import read_start
from lockstep.runs.run_files import RECORD, Metrics


def start(plan: Plan, fault: str = "") -> Metrics:
    with patch.dict(os.environ, FAULT=fault):
        metrics: Metrics = start_ranks(plan, "tests.fault_injection.engine_lightning")
    return metrics


def killed(plan: Plan, *steps: int) -> Plan:
    """Kill a run in a step, resume it, kill it in the next of the steps, …; return the plan that resumes it."""
    done = 0
    for step in steps:
        with pytest.raises(RankFailed, match="SIGKILL"):
            start(plan, f"kill@{step % plan.world_size}:step:{step - done}")
        plan = going_on_with(plan)
        done = read_start(plan).position.steps
    return plan


def going_on_with(plan: Plan) -> Plan:
    newest, damaged = newest_checkpoint([Path(plan.run_dir)])
    assert not damaged
    return replace(plan, resume=True, ckpt_path=None if newest is None else str(newest))


def record(plan: Plan) -> str:
    return (Path(plan.run_dir) / RECORD).read_text()


def untimed(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that depend neither on the clock nor on the engine."""
    return {key: value for key, value in metrics.items() if "second" not in key and key != "engine"}


def alike(metrics: Metrics, expected: Metrics) -> None:
    assert untimed(metrics) == untimed(expected)


def same_after_kill(plan: Plan, *steps: int, expected: Metrics | None = None) -> Plan:
    """Kill a run of the plan in each of the steps, resume it, compare its end with that of an unbroken run.

    Return the plan that resumed.
    """
    expected = start(plan) if expected is None else expected
    other = replace(plan, run_dir=str(Path(plan.run_dir) / f"killed-{steps[0]}"))
    Path(other.run_dir).mkdir()
    resumed = killed(other, *steps)
    alike(start(resumed), expected)
    assert record(other) == record(plan)
    return resumed
