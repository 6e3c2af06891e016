"""The command `python -m lockstep.collectives` as it is typed: its table, its files, its refusals; by torchrun too."""

import csv
import sys
from pathlib import Path

import pytest

from lockstep.cli_args import options
from lockstep.collectives.judge import COLUMNS
from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.tour import Tour
from lockstep.config_error import ConfigError
from lockstep.launch.worker import LOOPBACK_INTERFACE
from tests.conftest import Command, Ended, free_port

TOUR = (sys.executable, "-m", "lockstep.collectives")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def rows_of(ended: Ended) -> list[dict[str, str]]:
    """tour.csv in the folder that the last line names."""
    with (Path(ended.out.splitlines()[-1].strip()) / "tour.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (2, ["init_method=file"]),
        (3, ["init_method=env", "root=2"]),
        (4, ["init_method=tcp", "root=1"]),
    ],
)
def test_the_tour(command: Command, devices: int, words: list[str]) -> None:
    words = [word.replace("=tcp", f"=tcp://127.0.0.1:{free_port()}") for word in words]
    ended = command(*TOUR, f"devices={devices}", *words)
    assert (ended.status, ended.err) == (0, "")
    rows = rows_of(ended)
    assert tuple(rows[0]) == COLUMNS
    assert {row["theory"] for row in rows if row["primitive"] != "reduce"} == {"holds"}
    promised = {row["rank"] for row in rows if row["primitive"] == "reduce" and row["theory"] == "holds"}
    assert promised == {"".join(word[5:] for word in words if word.startswith("root=")) or "0"}
    pairs = [(primitive.name, str(rank)) for primitive in PRIMITIVES for rank in range(devices)]
    assert [(row["primitive"], row["rank"]) for row in rows] == pairs
    assert all(primitive.name in ended.out for primitive in PRIMITIVES)
    root = int(words[-1].removeprefix("root=")) if words[-1].startswith("root=") else 0
    gathered = {row["rank"]: row["after"] for row in rows if row["primitive"] == "gather"}
    everything = " ".join(f"{10 * (rank + 1)} {-10 * (rank + 1) - 1}" for rank in range(devices))
    assert [rank for rank, after in gathered.items() if after == everything] == [str(root)]


def test_one_rank_alone(command: Command) -> None:
    ended = command(*TOUR, "devices=1")
    assert (ended.status, ended.err) == (0, "")
    alone = {row["primitive"]: (row["theory"], row["explain"]) for row in rows_of(ended)}
    assert alone["send/recv"] == ("–", "it needs 2 ranks, and there is one")
    assert alone["all-reduce (sum)"][0] == "holds"


def test_under_torchrun(command: Command) -> None:
    ended = command(*TORCHRUN, "--nproc-per-node=2", "-m", "lockstep.collectives", "timeout=20", "root=1")
    assert ended.status == 0, ended.err
    assert {row["theory"] for row in rows_of(ended) if row["primitive"] != "reduce"} == {"holds"}
    assert ended.out.count("theory holds in 29 rows") == 1, "rank 0 alone prints"
    assert len(list(ended.folder.glob("logs/collectives/*"))) == 1


def test_on_two_machines(command: Command) -> None:
    """Two agents of one rank each, as on two machines that reach each other over loopback."""
    nodes = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}")
    started = [
        command.popen(
            *(*TORCHRUN, *nodes, f"--node-rank={node}", "-m", "lockstep.collectives", "timeout=30"),
            GLOO_SOCKET_IFNAME=LOOPBACK_INTERFACE,
        )
        for node in (0, 1)
    ]
    first, second = map(command.wait, started)
    assert (first.status, second.status) == (0, 0), first.err
    assert {row["rank"] for row in rows_of(first)} == {"0", "1"}
    assert "fails in 0" in first.out
    assert second.out == ""


@pytest.mark.slow
def test_the_benchmark_as_it_is_typed(command: Command) -> None:
    ended = command(*TOUR, "devices=2", "bench=true", timeout=110)
    assert (ended.status, ended.err) == (0, "")
    folder = Path(ended.out.splitlines()[-1].strip())
    assert {path.name for path in folder.iterdir()} == {"tour.csv", "bench.csv", "fit.csv", "bench.png", "ranks"}
    with (folder / "bench.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 13 * (len(PRIMITIVES) - 1) + 1


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (["devices=2", "root=2"], "root=2: there are ranks 0 to 1; write root=1, or one below."),
        (["root=-1"], "root=-1: there are ranks 0 to 3; write root=3, or one below."),
        (["devices=0"], "devices=0: it must be 1 or more; write devices=2, say."),
        (["backend=glo"], "it is none of the possible values (did you mean gloo?); write backend=gloo"),
        (["init_method=here"], "init_method=here: it is none of the ways to meet; write auto"),
        (["timeout=0"], "timeout=0.0: it must be above 0"),
        (["device=2"], "device=2: there is no such key (did you mean devices?); write devices=2."),
        (["zzz=2"], "zzz=2: there is no such key; write one that python -m lockstep.collectives --help lists."),
        (["tour"], "tour: this is no KEY=VALUE; python -m lockstep.collectives --help"),
        (["devices=["], "devices=[: this cannot be read"),
        (["partition", "samples=0"], "samples=0: it must be 1 or more"),
        (["mistakes", "devices=1"], "devices=1: these mistakes take two; write devices=2"),
        (["mistakes", "init_method=file:///x"], "a file serves once; write init_method=file."),
    ],
)
def test_what_cannot_be(
    words: list[str], reads: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstep.collectives.__main__ import main

    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert reads in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing was started"


def test_a_backend_that_is_not_there(command: Command) -> None:
    ended = command(*TOUR, "backend=mpi")
    assert ended.status == 2
    assert ended.err.startswith("backend=mpi: this torch was built without it; write ")
    assert ended.err.count("\n") == 1


def test_help(command: Command) -> None:
    ended = command(*TOUR, "--help")
    assert (ended.status, ended.err) == (0, "")
    for word in ("devices", "backend", "init_method", "timeout", "root", "bench", "partition", "mistakes"):
        assert word in ended.out


def test_options_have_their_types() -> None:
    tour = options(Tour, ["timeout=5", "init_method=tcp://127.0.0.1:29500", "bench=true"], "tour", devices=3)
    assert tour == Tour(devices=3, timeout=5.0, init_method="tcp://127.0.0.1:29500", bench=True)
    assert options(Tour, ["devices=2"], "tour", devices=3).devices == 2
    with pytest.raises(ConfigError, match="devices=two: it takes a whole number"):
        options(Tour, ["devices=two"], "tour")
