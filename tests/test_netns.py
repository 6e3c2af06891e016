"""Several machines (network namespaces joined by a switch): the numbers of one, and what a cut cable does to a run."""

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from lockstep.checkpoint.choice import newest_checkpoint
from tests.conftest import OWN, ROOT, Command, Ended
from tests.netns import Cluster, Machine, cluster

TIMEOUT = 4
"""Seconds of process_group.timeout where a cable is cut."""

JOB = ("strategy=ddp", "threads=1", "logger=none", "accelerator=cpu")
DEBIAN = "127.0.1.1 no-such-host-0 no-such-host-1"
"""How Debian has each machine's own name in /etc/hosts: on loopback."""

Torchrun = Callable[[Cluster, Machine, int], list[str]]


def meeting_at_a_rendezvous(machines: Cluster, machine: Machine, ranks: int) -> list[str]:
    """Return torchrun's words as in docs/clusters.md, with addresses: the machines' names do not resolve to them."""
    first = machines.machines[0]
    words = [f"--local-addr={machine.address}", f"--rdzv-conf=is_host={int(machine is first)}"]
    return torchrun(machines, machine, ranks, "--rdzv-backend=c10d", f"--rdzv-endpoint={first.address}:29400", *words)


def placed_by_hand(machines: Cluster, machine: Machine, ranks: int) -> list[str]:
    master = f"--master_addr={machines.machines[0].address}"
    return torchrun(machines, machine, ranks, f"--node_rank={machine.number}", master, "--master_port=29500")


def torchrun(machines: Cluster, machine: Machine, ranks: int, *words: str) -> list[str]:
    shape = (f"--nnodes={len(machines.machines)}", f"--nproc_per_node={ranks}")
    return machine.inside(sys.executable, "-m", "torch.distributed.run", *shape, *words)


def started(
    command: Command, machines: Cluster, how: Torchrun, ranks: int, *overrides: str, extra: Sequence[str] = ()
) -> "list[subprocess.Popen[str]]":
    return [command.popen(*line) for line in lines(machines, how, ranks, *overrides, extra=extra)]


def lines(
    machines: Cluster, how: Torchrun, ranks: int, *overrides: str, extra: Sequence[str] = ()
) -> "list[list[str]]":
    """The same job on every machine."""
    job = [str(ROOT / "train.py"), *JOB, f"devices={ranks}", f"num_nodes={len(machines.machines)}", *overrides]
    return [[*how(machines, machine, ranks), *extra, *job] for machine in machines.machines]


def all_ended(command: Command, processes: "Sequence[subprocess.Popen[str]]", timeout: float = 90) -> list[Ended]:
    began = time.monotonic()
    ended = [command.wait(one, max(1.0, timeout - (time.monotonic() - began)), began) for one in processes]
    assert not command.survivors()
    return ended


def left_by(folder: Path) -> tuple[str, list[str]]:
    """The digest of a run's net, and its record but for the line that tells it from others."""
    lines = (folder / "record.jsonl").read_text().splitlines()
    digest: str = json.loads((folder / "metrics.json").read_text())["digest"]
    return digest, [line for line in lines if "run" not in json.loads(line)]


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks of this machine leave, by both engines."""
    return four_ranks(tmp_path_factory.mktemp("one"), "engine=both", "max_epochs=2")


def four_ranks(folder: Path, *words: str) -> Path:
    ended = Command(folder).train(*JOB, "devices=4", *words)
    assert ended.status == 0, ended.err
    return ended.run_dir


def compare_with_one(command: Command, machines: Cluster, how: Torchrun, ranks: int, one_machine: Path) -> None:
    ended = all_ended(command, started(command, machines, how, ranks, "engine=both", "max_epochs=2"))
    assert [one.status for one in ended] == [0] * len(ended), ended
    assert [bool(one.out.count("epoch 2/2")) for one in ended].count(True) == 1, "one rank speaks"
    for engine in ("lightning", "raw"):
        assert left_by(ended[0].run_dir / engine) == left_by(one_machine / engine)
    metrics = json.loads((ended[0].run_dir / "raw" / "metrics.json").read_text())
    assert (metrics["world_size"], metrics["num_nodes"]) == (4, len(ended))


@pytest.mark.slow
def test_two_machines_compute_what_one_does(command: Command, one_machine: Path) -> None:
    """Placed by hand; two that meet at a rendezvous train a user's module below, and four what these do."""
    with cluster(2, DEBIAN) as machines:
        compare_with_one(command, machines, placed_by_hand, 2, one_machine)


@pytest.mark.slow
def test_two_machines_train_a_users_module(command: Command, tmp_path: Path) -> None:
    """Manual optimization with two optimizers, a loader of samples: four ranks leave what one machine does."""
    job = (f"hydra.searchpath=[file://{OWN / 'conf'}]", "model=gan", "data=blobs_data", "engine=both", "max_epochs=2")
    one = Command(tmp_path / "one")
    one.folder.mkdir()
    alone = one.train(*JOB, "devices=4", *job, PYTHONPATH=str(OWN))
    assert alone.status == 0, alone.err
    with cluster(2) as machines:
        started_there = [
            command.popen(*line, PYTHONPATH=str(OWN)) for line in lines(machines, meeting_at_a_rendezvous, 2, *job)
        ]
        ended = all_ended(command, started_there)
    assert [command.status for command in ended] == [0, 0], ended
    for engine in ("lightning", "raw"):
        assert left_by(ended[0].run_dir / engine) == left_by(alone.run_dir / engine)


@pytest.mark.slow
def test_four_machines_compute_what_one_does(command: Command, one_machine: Path) -> None:
    with cluster(4) as machines:
        compare_with_one(command, machines, meeting_at_a_rendezvous, 1, one_machine)


def wait_for_a_step(folder: Path, step: int, processes: "Sequence[subprocess.Popen[str]]") -> None:
    """Until the run's record has so many lines of steps."""
    deadline = time.monotonic() + 60
    record = folder / "record.jsonl"
    while not record.is_file() or record.read_text().count('{"step"') < step:
        assert time.monotonic() < deadline, "no step was made"
        assert all(process.poll() is None for process in processes), [one.communicate() for one in processes]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "how", "cut"), [("raw", meeting_at_a_rendezvous, 1), ("lightning", placed_by_hand, 0)]
)
def test_a_cut_cable_ends_the_run_on_both_machines(engine: str, how: Torchrun, cut: int, command: Command) -> None:
    run_dir = command.folder / "run"
    words = (f"process_group.timeout={TIMEOUT}", "checkpoint.every_n_steps=2", "max_epochs=10000")
    with cluster(2) as machines:
        processes = started(command, machines, how, 2, f"engine={engine}", *words, f"hydra.run.dir={run_dir}")
        wait_for_a_step(run_dir, 10, processes)
        machines.plug(machines.machines[cut], "down")
        ended = all_ended(command, processes, timeout=TIMEOUT + 10)
    for one in ended:
        assert one.status != 0
        said = f"A rank on another machine, or the link to it, did not answer within {TIMEOUT} s"
        assert said in one.err[-1000:], one.err
    newest, damaged = newest_checkpoint([run_dir])
    assert newest is not None
    assert not damaged


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks leave that nobody disturbs."""
    return four_ranks(tmp_path_factory.mktemp("undisturbed"), "engine=raw", "max_epochs=10")


RESTARTS = ("resume=true", "checkpoint.every_n_steps=2", f"process_group.timeout={TIMEOUT}", "max_epochs=10")


@pytest.mark.slow
def test_with_restarts_it_goes_on_when_the_link_is_back(command: Command, undisturbed: Path) -> None:
    run_dir = command.folder / "run"
    words = ("engine=raw", *RESTARTS, f"hydra.run.dir={run_dir}")
    with cluster(2) as machines:
        extra = ["--max-restarts=3"]
        processes = started(command, machines, meeting_at_a_rendezvous, 2, *words, extra=extra)
        wait_for_a_step(run_dir, 30, processes)
        machines.plug(machines.machines[1], "down")
        time.sleep(3 * TIMEOUT)
        machines.plug(machines.machines[1], "up")
        ended = all_ended(command, processes, timeout=80)
    assert [one.status for one in ended] == [0, 0], ended
    assert any("resuming from" in one.out for one in ended)
    assert left_by(run_dir) == left_by(undisturbed)


@pytest.mark.slow
def test_with_restarts_it_goes_on_after_a_killed_rank(command: Command, undisturbed: Path) -> None:
    """The other machine's agent starts its ranks anew too, and does not count that as a restart."""
    run_dir = command.folder / "run"
    words = ("engine=raw", *RESTARTS, f"hydra.run.dir={run_dir}")
    with cluster(2) as machines:
        extra = ["--max-restarts=3"]
        processes = started(command, machines, meeting_at_a_rendezvous, 2, *words, extra=extra)
        wait_for_a_step(run_dir, 30, processes)
        psutil.Process(processes[1].pid).children()[-1].send_signal(signal.SIGKILL)
        ended = all_ended(command, processes, timeout=80)
    assert [one.status for one in ended] == [0, 0], ended
    assert left_by(run_dir) == left_by(undisturbed)


MIRROR = "yann.lecun.com"
"""The mirror of MNIST that torchvision asks without TLS; here it is each machine itself."""


@pytest.mark.slow
def test_each_machine_fetches_its_data_once(command: Command, mnist: str) -> None:
    """Two ranks start on each, with nothing at `data.root`, which is a disk of the machine alone."""
    mirror = command.folder / "mirror" / "exdb" / "mnist"
    mirror.mkdir(parents=True)
    for path in sorted((Path(mnist) / "MNIST" / "raw").glob("*-ubyte")):
        with gzip.open(mirror / f"{path.name}.gz", "wb", compresslevel=1) as packed:
            packed.write(path.read_bytes())
    serving = [sys.executable, "-m", "http.server", "80", "--bind=127.0.0.1", f"--directory={mirror.parents[1]}"]
    small = ("engine=raw", "model=linear", "data=mnist", "data.root=/mnt/data", "max_epochs=1", "batch_size=4000")
    with cluster(2, f"127.0.0.1 {MIRROR}") as machines:
        mirrors = [command.popen(*machine.inside(*serving)) for machine in machines.machines]
        try:
            # for two machines are one here: what is not theirs to share is the folder of the data alone
            processes = started(command, machines, placed_by_hand, 2, *small, f"hydra.run.dir={command.folder}/run")
            ended = [command.wait(process) for process in processes]
        finally:
            for process in mirrors:
                process.terminate()
            asked = [process.communicate()[1] for process in mirrors]
    assert [one.status for one in ended] == [0, 0], ended
    for lines in asked:
        fetched = sorted(line.split("/exdb/mnist/")[1].split()[0] for line in lines.splitlines() if "GET" in line)
        assert fetched == sorted(path.name for path in mirror.iterdir())
