"""An error of torch.distributed as one clear sentence: who called what, and who stayed away."""

import re

FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, )?OpType=(\w+)"
    r"(?:, TensorShape=(\[[\d, ]*\]), TensorDtypes=(\w+))?"
)
"""What DETAIL says of each rank's call; the rest of the message is layouts and flags."""


def sentence(error: str, world: int, limit: float) -> str:
    """What torch says, in the words of the project; what is not known here stays as it is, on one line."""
    said = " ".join(error.split()).replace("process_group.", "")
    calls = FINGERPRINT.findall(said)
    if len(calls) == 2:
        ours, theirs = (called(*call) for call in calls)
        return f"{ours}, but {theirs}"
    if found := re.search(r"(?:invalid root rank:|Global rank) (\d+)", said):
        return f"root={found[1]}: there is no such rank, only 0 to {world - 1}"
    if found := re.search(r"Ranks ([\d, ]+) failed to pass monitoredBarrier", said):
        away = found[1].strip()
        return f"rank{'s' if ',' in away else ''} {away} stayed away from the collective for {limit:g} s"
    return said


def called(rank: str, operation: str, shape: str, kind: str) -> str:
    """`rank 0 calls allreduce on [4] of float32`."""
    names = {"Float": "float32", "Double": "float64", "Long": "int64", "Int": "int32"}
    return f"rank {rank} calls {operation.lower()}" + (f" on {shape} of {names.get(kind, kind)}" if shape else "")
