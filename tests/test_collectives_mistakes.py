"""Wrong use, made on purpose: each ends within its time, with a sentence that says what was wrong."""

import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.collectives.checked import Mismatch, checked_recv, checked_send
from lockstep.collectives.mistakes import Mistakes, make_all, row
from lockstep.collectives.reading import sentence
from lockstep.collectives.wrong import SLACK, WRONG, Caught
from lockstep.launch import RankContext, RankFailed
from lockstep.plan import Plan
from tests.conftest import Command
from tests.rank_helpers import on_ranks

MakePlan = Callable[..., Plan]


@pytest.mark.slow
def test_all_mistakes(command: Command) -> None:
    """The fixture sees to it that no process is left."""
    ended = command(sys.executable, "-m", "lockstep.collectives", "mistakes", "timeout=5", "devices=3")
    assert ended.status == 0, ended.out + ended.err
    assert ended.err == ""
    assert "8 of 8 mistakes caught" in ended.out
    with (Path(ended.out.splitlines()[-1].strip()) / "mistakes.csv").open(newline="") as file:
        rows = dict(zip(WRONG, csv.DictReader(file), strict=True))
    assert {line["caught"] for line in rows.values()} == {"yes"}
    assert all(float(line["seconds"]) < 5 + SLACK for line in rows.values())
    reads = {wrong: line["what you read"] for wrong, line in rows.items()}
    assert reads["root"] == "root=8: there is no such rank, only 0 to 2"
    assert reads["peer"] == "dst=8: there is no such rank, only 0 to 2"
    assert reads["shapes"].startswith("rank 0 calls allreduce on [4] of float32, but rank 2 calls allreduce on [3]")
    assert reads["sizes"] == "rank 0 sends 4 numbers of float32 and rank 1 awaits 3 numbers of float32"
    assert reads["away"] == "rank 2 stayed away from the collective for 5 s"
    assert reads["joins"].startswith("rank 2 of 3 did not join within 5 s")


def exchange(plan: Plan, context: RankContext) -> Any:
    """What fits goes through; what does not is an error on both ranks, and the next message still goes through."""
    said = []
    for size, kind in ((3, torch.float32), (4, torch.int64), (4, torch.float32), (3, torch.float32)):
        tensor = torch.full((3,), 7.0) if context.rank == 0 else torch.zeros(size, dtype=kind)
        try:
            checked_send(tensor, 1) if context.rank == 0 else checked_recv(tensor, 0)
            said.append(str(tensor.tolist()))
        except Mismatch as error:
            said.append(str(error))
    for peer in (context.rank, 2, -1):
        with pytest.raises(Mismatch, match=r"dst=.*: (there is no such rank, only 0 to 1|this is rank . itself)"):
            checked_send(torch.zeros(1), peer)
    everyones: list[Any] = [None] * 2
    torch.distributed.all_gather_object(everyones, said)
    return {"said": everyones}


def test_checked_send_and_receive(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp", "devices=2", "batch_size=12", "accelerator=cpu")
    returned: Any = on_ranks(plan, exchange)
    first, second = returned["said"]
    assert first == second
    assert first[0] == first[3] == "[7.0, 7.0, 7.0]"
    assert first[1] == "rank 0 sends 3 numbers of float32 and rank 1 awaits 4 numbers of int64"
    assert first[2] == "rank 0 sends 3 numbers of float32 and rank 1 awaits 4 numbers of float32"


def test_what_is_not_caught_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controls: nothing is said, something else is said, a rank dies, a rank hangs."""
    wanted = Mistakes(timeout=1.0)
    wrong = WRONG["away"]
    assert row(wrong, Caught("rank 1 stayed away", 1.0, True), 1.0)["caught"] == "yes"
    assert row(wrong, Caught("rank 1 stayed away", 1.0 + 2 * SLACK, True), 1.0)["caught"] == "no"
    assert row(wrong, Caught("nothing: the call went through", 0.1, False), 1.0)["caught"] == "no"

    def dies(work: object, engine: str) -> Caught:
        raise RankFailed(1, "it was ended by SIGABRT")

    monkeypatch.setattr("lockstep.launch.start", dies)
    monkeypatch.chdir(tmp_path)
    assert make_all(wanted, ["sizes"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "rank 1 failed: it was ended by SIGABRT" in said
    assert "0 of 1 mistakes caught" in said


def hangs(plan: Plan, context: RankContext) -> Any:
    from lockstep.collectives.wrong import ended_if_it_hangs

    with ended_if_it_hangs(1 - SLACK):
        time.sleep(60)


def test_a_hang_ends(make_plan: MakePlan) -> None:
    began = time.monotonic()
    with pytest.raises(RankFailed):
        on_ranks(make_plan("strategy=ddp", "devices=2", "batch_size=12", "accelerator=cpu"), hangs)
    assert time.monotonic() - began < 20


def test_sentences() -> None:
    shape = "Rank {} is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[{}]"
    rest = ", TensorDtypes=Double, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))"
    said = "Detected mismatch. " + shape.format(1, "4, 2") + rest + ", but " + shape.format(0, 3) + rest
    assert sentence(said, 2, 5) == (
        "rank 1 calls allreduce on [4, 2] of float64, but rank 0 calls allreduce on [3] of float64"
    )
    assert sentence("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms", 4, 5).startswith("ranks 1, 3 ")
    assert sentence("some\n other   words", 2, 5) == "some other words"
