"""profiler=timeline: what is said of a run of too few steps; test_report_run.py reads the trace of two ranks."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from lockstep.base.timeline import timeline


def train(folder: Path, steps: int) -> dict[str, object]:
    """Record some steps of one rank; return the summary."""
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters())
    with timeline(str(folder), 0, "timeline") as recorded:
        for _ in range(steps):
            net(torch.ones(1)).sum().backward()
            optimizer.step()
    assert recorded is not None
    return recorded.summary


def test_a_run_of_five_steps_has_three(tmp_path: Path) -> None:
    assert train(tmp_path, 5) == {"steps": 3, "ranks": [{}]}
    events = json.loads(gzip.decompress((tmp_path / "profiler" / "timeline.json.gz").read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0}
    assert sum(event["name"] == "Optimizer.step#SGD.step" for event in events) == 3


def test_a_run_of_two_steps_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, 2) == {}
    reason = "no optimizer step follows the first 2"
    assert capsys.readouterr().err == f"profiler/timeline.json.gz was not written: {reason}\n"
