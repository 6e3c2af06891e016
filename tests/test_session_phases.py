"""Seconds of a step by phase, and of the epochs of a run."""

import time

import pytest
import torch

from lockstep.engine.phases import Phases


def test_unmarked_time_is_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 11.0, 13.0, 13.5, 14.0, 14.0, 15.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    phases = Phases(torch.device("cpu"))
    phases.begin()  # ten seconds that are of no step
    phases.mark("data")
    phases.mark("forward")
    phases.end_batch(samples=3)
    phases.end_batch(samples=5)
    assert phases.seconds == 4.0
    assert phases.end_epoch() == {"data": 0.5, "forward": 1.0, "rest": 0.5}
    assert (phases.seconds, phases.batches, phases.samples) == (4.0, 0, 8)
