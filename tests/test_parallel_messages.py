"""Bytes between real ranks."""

from collections.abc import Callable

from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_gather_bytes, broadcast_bytes, gather_bytes
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.rank_helpers import on_ranks

MESSAGES = [b"", b"\x00\xff" * 5000, b"one\x00"]


def send(_plan: Plan, context: RankContext) -> Metrics:
    own = MESSAGES[context.rank]
    found = {
        "first": [broadcast_bytes(one if context.rank == 0 else b"x") for one in MESSAGES] == MESSAGES,
        "to first": gather_bytes(own) == (MESSAGES if context.rank == 0 else []),
        "to all": all_gather_bytes(own) == MESSAGES,
    }
    everywhere = all_gather_bytes(repr(found).encode())
    return {"found": str(found), "alike": len(set(everywhere)) == 1}


def test_messages_of_any_length_arrive(make_plan: Callable[..., Plan]) -> None:
    found = on_ranks(make_plan("strategy=ddp_spawn", "devices=3", "batch_size=12", "accelerator=cpu"), send)
    assert found == {"found": str(dict.fromkeys(["first", "to first", "to all"], True)), "alike": True}
