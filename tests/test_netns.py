"""Several machines (network namespaces joined by a switch): the same numbers as on one, even after a cut cable."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.comparing import metrics_in
from tests.conftest import ROOT, USER_CODE, Command, Ended
from tests.fault_injection.command import leaves
from tests.netns import Cluster, Machine, cluster
from tests.zygote import zygote

TIMEOUT = 4
"""Seconds of process_group.timeout where a cable is cut."""
JOB = ("strategy=ddp", "threads=1", "logger=none", "accelerator=cpu")
MODULE = (f"hydra.searchpath=[file://{USER_CODE / 'conf'}]", "model=gan", "data=blobs_data")
DEBIAN = "127.0.1.1 no-such-host-0 no-such-host-1"
"""Debian's line for a machine's own name in /etc/hosts: on loopback."""
Launcher = Callable[[Cluster, Machine], list[str]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def by_rendezvous(machines: Cluster, machine: Machine) -> list[str]:
    """Return torchrun's options as in docs/clusters.md, with addresses, since no machine's name resolves to its own."""
    first = machines.machines[0]
    local = [f"--local-addr={machine.address}", f"--rdzv-conf=is_host={int(machine is first)}"]
    return ["--rdzv-backend=c10d", f"--rdzv-endpoint={first.address}:29400", *local]


def by_address(machines: Cluster, machine: Machine) -> list[str]:
    """Return torchrun's options for machines that are numbered by hand."""
    master = machines.machines[0].address
    return [f"--node_rank={machine.number}", f"--master_addr={master}", "--master_port=29500"]


def start(
    command: Command, machines: Cluster, launcher: Launcher, ranks: int, *overrides: str, restarts: int = 0
) -> "list[subprocess.Popen[str]]":
    """Start the same job on every machine by torchrun."""
    count = len(machines.machines)
    shape = (f"--nnodes={count}", f"--nproc_per_node={ranks}", f"--max-restarts={restarts}")
    job = (str(ROOT / "train.py"), *JOB, f"devices={ranks}", f"num_nodes={count}", *overrides)
    warm = zygote().for_scripts
    torchrun = (warm["PYTHON_EXEC"], "-m", "torch.distributed.run", *shape)
    lines = [machine.inside(*torchrun, *launcher(machines, machine), *job) for machine in machines.machines]
    return [command.popen(*line, PYTHONPATH=str(USER_CODE), **warm) for line in lines]


def wait_for_all(command: Command, processes: "Sequence[subprocess.Popen[str]]", timeout: float = 240) -> list[Ended]:
    began = time.monotonic()
    ended = [command.wait(process, max(1.0, timeout - (time.monotonic() - began)), began) for process in processes]
    assert not command.survivors()
    return ended


def on_one(folder: Path, ranks: int, *overrides: str) -> Path:
    """Train with so many ranks on this machine, undisturbed; return the run's folder."""
    ended = Command(folder).train(*JOB, f"devices={ranks}", *overrides, PYTHONPATH=str(USER_CODE))
    assert ended.status == 0, ended.err
    return ended.run_dir


def test_machines_compute_the_same_as_one(command: Command, tmp_path: Path) -> None:
    job = (*MODULE, "engine=both", "max_epochs=1")
    (tmp_path / "one").mkdir()
    one = on_one(tmp_path / "one", 4, *job)
    with cluster(2, DEBIAN) as machines:
        run_dir = f"hydra.run.dir={command.folder / 'run'}"
        ended = wait_for_all(command, start(command, machines, by_address, 2, *job, run_dir))
    assert [each.status for each in ended] == [0, 0], ended
    assert [each.out.count("epoch 1/1") > 0 for each in ended].count(True) == 1, "one rank prints"
    for engine in ("lightning", "raw"):
        assert leaves(command.folder / "run" / engine) == leaves(one / engine)
    metrics = metrics_in(command.folder / "run" / "raw")
    assert (metrics["world_size"], metrics["num_nodes"]) == (4, 2)


def wait_for_a_step(folder: Path, step: int, processes: "Sequence[subprocess.Popen[str]]") -> None:
    """Wait until the run's record has so many steps."""
    deadline = time.monotonic() + 180
    record = folder / "record.jsonl"
    while not record.is_file() or record.read_text().count('{"step"') < step:
        assert time.monotonic() < deadline, "no step was made"
        assert all(process.poll() is None for process in processes), [process.communicate() for process in processes]
        time.sleep(0.05)


def test_a_run_restarts_after_the_cable_was_cut(command: Command, tmp_path: Path) -> None:
    """For a while. tests/test_clusters.py kills a rank."""
    run_dir = command.folder / "run"
    job = ("resume=true", "checkpoint.every_n_steps=2", "max_epochs=3", f"hydra.run.dir={run_dir}")
    with cluster(2) as machines:
        timeout = f"process_group.timeout={TIMEOUT}"
        processes = start(command, machines, by_rendezvous, 1, *job, timeout, restarts=3)
        wait_for_a_step(run_dir, 20, processes)
        machines.plug(machines.machines[1], "down")
        time.sleep(2 * TIMEOUT)
        machines.plug(machines.machines[1], "up")
        ended = wait_for_all(command, processes, timeout=240)
    assert [each.status for each in ended] == [0, 0], ended
    resumed = sum(each.out.count("resuming from") for each in ended)
    assert resumed in (1, 2)  # a busy machine may exceed the timeout once more
    (tmp_path / "one").mkdir()
    assert leaves(run_dir) == leaves(on_one(tmp_path / "one", 2, "max_epochs=3"))
