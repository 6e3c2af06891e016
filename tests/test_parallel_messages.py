"""Messages of bytes between real ranks."""

from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_gather_bytes, gather_bytes
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks

MESSAGES = [b"", b"\x00\xff" * 5000, b"one\x00"]


def send(_plan: Plan, context: RankContext) -> Metrics:
    """On a rank: return how many ranks receive all messages."""
    message = MESSAGES[context.rank]
    received = gather_bytes(message) == (MESSAGES if context.rank == 0 else []), all_gather_bytes(message) == MESSAGES
    return {"ranks": all_gather_bytes(repr(received).encode()).count(b"(True, True)")}


def test_messages_of_any_length_arrive(make_plan: MakePlan) -> None:
    plan = make_plan("strategy=ddp_spawn", "devices=3", "batch_size=12", "accelerator=cpu")
    assert on_ranks(plan, send) == {"ranks": 3}
