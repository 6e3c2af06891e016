"""show_shapes: each replica prints the shapes of its first training batch; 30 rows of five features are 15 and 15."""

import pytest
import torch
from torch import nn

from lockstep.engine.session import show_shapes
from lockstep.strategies.parallel.cpu_data_parallel import CpuDataParallel
from tests.conftest import Command

LINE = "a replica sees (15, 5) and returns (15, 2)"


def test_each_replica_of_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Linear(5, 2)
    show_shapes(net, replicas=2)
    replicas = CpuDataParallel(net, 2)
    net.eval()
    replicas(torch.zeros(30, 5))
    net.train()
    for _ in range(3):
        replicas(torch.zeros(30, 5))
    assert capsys.readouterr().out.splitlines() == [LINE, LINE]


@pytest.mark.slow
def test_each_rank(command: Command) -> None:
    ended = command.train("experiment=replica_shapes")
    log = (ended.run_dir / "ranks" / "1.log").read_text()
    for text in (ended.out, log):
        assert text.count("a replica sees") == text.count(LINE) == 1, "once, of its three batches"
