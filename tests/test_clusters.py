"""The files for clusters in docs/, played through on this machine: SLURM requeues a job, Kubernetes starts pods."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.conftest import ROOT, Command, free_port
from tests.fault_injection.command import Leaves, leaves
from tests.test_signals import wait_until
from tests.zygote import zygote

SMALL = ("data=digits", "data.val_size=20", "data.test_size=1740", "batch_size=8", "model=linear", "logger=none")
LONG = (*SMALL, "max_epochs=20", "threads=1")

SRUN = """#!/bin/bash
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_LOCALID=0 "$@" {words} &
done
status=0
for task in $(jobs -p); do wait "$task" || status=$?; done
exit $status
"""
"""Two tasks on two nodes; as SLURM's own, it exits with the largest status."""
SCONTROL = """#!/bin/bash
echo "$@" >> requeued
"""
TASKS = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "2", "SLURM_NNODES": "2", "SLURM_NODELIST": "localhost"}
MANIFEST = yaml.safe_load((ROOT / "docs" / "kubernetes_pytorchjob.yaml").read_text())

pytestmark = [pytest.mark.slow, pytest.mark.timeout(660)]


@pytest.fixture
def checkout(command: Command) -> Command:
    """Commands in a folder with what a checkout has."""
    for name in ("train.py", "conf", "src"):
        (command.folder / name).symlink_to(ROOT / name)
    return command


def alone(folder: Path, ranks: int, *words: str) -> Leaves:
    ended = Command(folder).train("strategy=ddp", f"devices={ranks}", *words, "hydra.run.dir=alone")
    assert ended.status == 0, ended.err
    return leaves(folder / "alone")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Leaves:
    """Return what an uninterrupted run of two ranks leaves."""
    return alone(tmp_path_factory.mktemp("full"), 2, *LONG)


def test_sbatch_requeues_a_run_that_goes_on(uninterrupted: Leaves, checkout: Command) -> None:
    (checkout.folder / "bin").mkdir()
    for name, text in (
        ("srun", SRUN.format(words=" ".join((*LONG, "devices=1")))),
        ("scontrol", SCONTROL),
    ):
        (checkout.folder / "bin" / name).write_text(text)
        (checkout.folder / "bin" / name).chmod(0o755)
    warm = zygote().for_scripts
    variables: dict[str, Any] = {
        **TASKS,
        "PATH": f"{checkout.folder / 'bin'}{os.pathsep}{warm['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    script = ("bash", str(ROOT / "docs" / "slurm_requeue.sh"))
    run, requeued = checkout.folder / "logs" / "slurm" / "4711", checkout.folder / "requeued"
    job = checkout.popen(*script, **variables)
    wait_until((run / "checkpoints" / "last.ckpt").is_file)
    for task in psutil.Process(job.pid).children(recursive=True):
        if "train.py" in task.cmdline():
            task.send_signal(signal.SIGTERM)
    ended = checkout.wait(job)
    assert (ended.status, requeued.read_text()) == (143, "requeue 4711\n"), ended.err
    assert ended.err.count("SIGTERM: stopped after step ") == 1
    again = checkout(*script, **variables)
    assert (again.status, requeued.read_text()) == (0, "requeue 4711\n"), again.err
    assert "resuming from" in again.out
    assert leaves(run) == uninterrupted


def test_the_pods_of_a_pytorchjob_train_together(checkout: Command) -> None:
    """With the variables that the training operator sets, older and newer."""
    port, replicas = str(free_port()), MANIFEST["spec"]["pytorchReplicaSpecs"]
    assert {name: spec["replicas"] for name, spec in replicas.items()} == {"Master": 1, "Worker": 1}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "4", "PET_NPROC_PER_NODE": "auto"}
    pods = []
    for rank, spec in enumerate(replicas.values()):
        [container] = spec["template"]["spec"]["containers"]
        assert (container["name"], container["command"]) == ("pytorch", ["torchrun"])
        variables = {**place, "RANK": str(rank), "PET_NNODES": "2", "PET_NODE_RANK": str(rank)}
        words = [word.replace("/runs/", f"{checkout.folder}/runs/") for word in container["args"]]
        words = [re.sub(r"\$\((\w+)\)", lambda name, values=variables: values[name[1]], word) for word in words]  # type: ignore[misc]
        line = (sys.executable, "-m", "torch.distributed.run", *words, *SMALL, "max_epochs=1", "threads=1")
        executable = zygote().for_scripts["PYTHON_EXEC"]
        pods.append(checkout.popen(*line, **variables, GLOO_SOCKET_IFNAME="lo", PYTHON_EXEC=executable))
    ended = [checkout.wait(pod) for pod in pods]
    assert [each.status for each in ended] == [0, 0], [each.err for each in ended]
    run = Path(checkout.folder / "runs" / "lockstep")
    assert leaves(run) == alone(checkout.folder, 4, *SMALL, "max_epochs=1", "threads=1")


def test_a_run_restarts_after_a_rank_is_killed(uninterrupted: Leaves, checkout: Command) -> None:
    """Under torchrun's agents of two machines, which both start their ranks anew."""
    run, record = checkout.folder / "run", checkout.folder / "run" / "record.jsonl"
    job = (*LONG, "strategy=ddp", "devices=1", "num_nodes=2", "resume=true", "checkpoint.every_n_steps=2")
    shape = ("--nnodes=2", "--nproc_per_node=1", "--max-restarts=3", "--local-addr=127.0.0.1", "--rdzv-backend=c10d")
    port, warm = free_port(), zygote().for_scripts
    agents = []
    for is_host in (1, 0):
        rendezvous = (f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf=is_host={is_host}")
        line = (*shape, *rendezvous, str(ROOT / "train.py"), *job, f"hydra.run.dir={run}")
        agents.append(
            checkout.popen(sys.executable, "-m", "torch.distributed.run", *line, **warm, GLOO_SOCKET_IFNAME="lo")
        )
    wait_until(lambda: record.is_file() and record.read_text().count('{"step"') >= 20)
    next(process for process in checkout.alive() if "-u" in process.cmdline()).send_signal(signal.SIGKILL)
    ended = [checkout.wait(agent) for agent in agents]
    assert [each.status for each in ended] == [0, 0], [each.err for each in ended]
    assert sum(each.out.count("resuming from") for each in ended) == 1
    assert leaves(run) == uninterrupted
