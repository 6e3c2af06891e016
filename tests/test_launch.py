"""The launcher with an engine for tests: ranks, environments, results, and which rank is named after a failure."""

import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.launch.external_launcher import check_launchable, rank_from_env, rendezvous_variables
from lockstep.launch.failure import (
    LOST_PEER,
    OWN_ERROR,
    TIMEOUT,
    FailureReport,
    RankFailed,
    exit_reason,
    first_failure,
    kind_of,
    root_error,
)
from lockstep.launch.signals import ENDING
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from tests.conftest import MakePlan, require_refused

ENGINE = "tests.fault_injection.faulty_engine"


def test_the_parent_stays_as_it_was(make_plan: MakePlan, capfd: pytest.CaptureFixture[str]) -> None:
    """And the output of other ranks goes to their logs."""

    def state() -> tuple[object, ...]:
        numbers = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]
        handlers = [signal.getsignal(number) for number in ENDING]
        return dict(os.environ), numbers, handlers, torch.get_num_threads(), torch.distributed.is_initialized()

    plan, before = make_plan("strategy=ddp", "devices=2"), state()
    start_ranks(plan, ENGINE)
    assert state() == before
    assert "rank 1 speaks" in (Path(plan.run_dir) / "ranks" / "1.log").read_text()
    assert not (Path(plan.run_dir) / "ranks" / "0.log").exists()
    assert "rank 1" not in capfd.readouterr().out


TORCHRUN = {
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    **{"MASTER_ADDR": "a", "MASTER_PORT": "1"},
}
SLURM = {
    **{"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NNODES": "2"},
    **{"SLURM_JOB_ID": "12345", "SLURM_NODELIST": "gpu[07-08]", "SLURM_JOB_NAME": "train"},
}


def test_ranks_of_torchrun_and_slurm() -> None:
    expected = RankContext(rank=3, world_size=4, local_rank=1, local_world_size=2)
    assert rank_from_env(TORCHRUN) == rank_from_env(SLURM) == expected
    assert expected.variables["GROUP_RANK"] == "1"
    assert rank_from_env({}) is None
    assert rank_from_env({**SLURM, "SLURM_JOB_NAME": "bash"}) is None, "a prompt inside an allocation is no task"
    assert rank_from_env({"RANK": "0", "WORLD_SIZE": "1"}) is None, "half a place is none"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "This launcher's ranks are not recognized; start them by torchrun"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "This launcher's ranks are not recognized; start them by torchrun"),
    ],
)
def test_invalid_variables_are_rejected(variables: dict[str, str], sentence: str) -> None:
    require_refused(sentence, lambda: rank_from_env(variables))


def test_slurm_tasks_rendezvous_on_the_first_host() -> None:
    for names, first in (("a", "a"), ("a,b", "a"), ("n[3,5],m1", "n3"), ("node-[01-04]", "node-01")):
        variables = {"MASTER_ADDR": first, "MASTER_PORT": "15345"}
        assert rendezvous_variables({**SLURM, "SLURM_NODELIST": names}) == variables


def test_another_world_size_is_rejected(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = ("strategy=ddp", "devices=2", "num_nodes=2"), ("strategy=ddp", "devices=1"), ("strategy=dp", "devices=2")
    four, one, replicas = (make_plan(*words).world for words in plans)
    context = "lockstep.launch.external_launcher.rank_from_env"
    monkeypatch.setattr(context, lambda: RankContext(0, 1, 0, 1))
    check_launchable(replicas)
    monkeypatch.setattr(context, lambda: RankContext(0, 4, 0, 2))
    check_launchable(four)
    with pytest.raises(ConfigError, match="write devices=2 num_nodes=2"):
        check_launchable(one)
    with pytest.raises(ConfigError, match="strategy=dp: it is one process, and 4 processes were started"):
        check_launchable(replicas)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="This process is in a process group"):
        check_launchable(four)


def test_the_first_failure_is_the_cause() -> None:
    reports = {0: FailureReport(RankFailed(0, "of 0"), 1.0, LOST_PEER)}
    assert str(first_failure(reports, {1: -9}).error) == f"rank 1 failed: {exit_reason(-9)}"
    assert str(first_failure(reports, {1: 0}).error) == "rank 1 failed: it ended with exit status 0 and no traceback"
    reports[2] = FailureReport(RankFailed(2, "of 2"), 3.0)
    assert str(first_failure(reports, {1: -15}).error) == "rank 2 failed: of 2"
    reports[3] = FailureReport(RankFailed(3, "of 3"), 2.0)
    assert str(first_failure(reports, {}).error) == "rank 3 failed: of 3"


def test_an_error_of_a_teardown_hides_no_refusal() -> None:
    refusal, teardown, caught = ConfigError("devices=0"), RuntimeError("of a teardown"), ValueError("from None")
    teardown.__context__ = caught.__context__ = refusal
    caught.__suppress_context__ = True
    assert root_error(teardown) is refusal
    assert root_error(caught) is caught
    caught.__cause__ = caught  # `raise error from error`
    assert root_error(caught) is caught


def test_what_a_collective_says_of_its_peers() -> None:
    gloo = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:38290"
    assert kind_of(RuntimeError(gloo)) == LOST_PEER
    assert kind_of(RuntimeError("[unbound_buffer.cc:81] Timed out waiting 4000ms for recv operation")) == TIMEOUT
    for users in ("DataLoader timed out after 3 seconds", "mat1 and mat2 shapes cannot be multiplied"):
        assert kind_of(RuntimeError(users)) == OWN_ERROR
