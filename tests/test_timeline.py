"""profiler=timeline: what is said of ranks and steps that are not in it; test_report_run.py reads one of two ranks."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from lockstep.base.timeline import timeline


def train(folder: Path, steps: int) -> dict[str, object]:
    """Record some steps of rank 0 of two; return the summary."""
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters())
    with timeline(str(folder), 0, 2, "timeline") as recorded:
        for _ in range(steps):
            net(torch.ones(1)).sum().backward()
            optimizer.step()
    assert recorded is not None
    return recorded.summary


def test_a_rank_without_a_trace_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lockstep.base.timeline.PATIENCE", 0.1)
    assert train(tmp_path, 5) == {"steps": 3, "ranks": [{}, {}]}
    reason = "which has left no trace within 0.1 s"
    assert capsys.readouterr().err == f"profiler/timeline.json.gz lacks rank 1, {reason}\n"
    [file] = (tmp_path / "profiler").iterdir()
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0}
    assert sum(event["name"] == "Optimizer.step#SGD.step" for event in events) == 3


def test_a_run_of_two_steps_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, 2) == {}
    reason = "no optimizer step follows the first 2"
    assert capsys.readouterr().err == f"profiler/timeline.json.gz was not written: {reason}\n"
