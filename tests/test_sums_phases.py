"""Seconds of a step by phase, and of the epochs of a run."""

import time

import pytest

from lockstep.sums.phases import Phases, seconds_range


def test_unmarked_time_is_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 11.0, 13.0, 13.5, 14.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    phases = Phases()
    phases.begin()  # ten seconds that are of no step
    phases.mark("data")
    phases.mark("forward")
    phases.step()
    phases.step()
    assert phases.total == 4.0
    assert phases.of_batch() == {"data": 0.5, "forward": 1.0, "rest": 0.5}
    assert (phases.total, phases.of_batch()) == (0.0, {})


def test_three_epochs_beside_the_first_tell_a_range() -> None:
    assert seconds_range([9.0, 1.0, 3.0, 2.0]) == {"epoch_seconds_min": 1.0, "epoch_seconds_max": 3.0}
    assert seconds_range([9.0, 1.0, 3.0]) == {}
    assert seconds_range([0.0] * 9) == {}
