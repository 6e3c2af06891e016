"""From what the ranks gather to the record's lines: pure functions."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lockstep.record.file import Line
from lockstep.run_files import FINGERPRINTED

COLUMNS = 4
"""Of a rank's part of each step: loss sum, sample count, gradient norm, digest of the sample ids."""


def step_lines(
    parts: Tensor,
    prints: Mapping[int, Tensor],
    rates: Sequence[float],
    epoch: int,
    last_step: int,
    sharded: bool = False,
    logged: Sequence[Mapping[str, Mapping[str, float]]] = (),
) -> Iterator[Line]:
    """The lines of an epoch's steps up to `last_step`, each followed by its fingerprints where it has any.

    `grad_norm_spread` is the largest difference of a rank's norm from rank 0's, 0 unless ranks have diverged. Where
    gradients are all-reduced it is 0 by construction: their fingerprints show whether ranks hold the same.

    Args:
        parts: (ranks, steps, COLUMNS) float64; the digest's 64 bits are stored as a float.
        prints: of those steps that have them, by number from 0: (ranks, kinds, bytes) uint8.
        rates: one a step.
        sharded: whether each rank holds a shard, so that fingerprints may differ. Written beside them, since another
            strategy may continue the record.
        logged: of each step what a LightningModule has logged on it, numbers and metrics, by name.
    """
    losses, counts = parts[:, :, 0].sum(0).tolist(), parts[:, :, 1].sum(0).tolist()
    norms, digests = parts[:, :, 2], parts[:, :, 3].contiguous().view(torch.int64).sum(0).tolist()
    alike = (norms == norms[0]) | (norms.isnan() & norms[0].isnan())
    spread = (norms - norms[0]).abs().masked_fill(alike, 0.0).amax(0).tolist()
    for index, rate in enumerate(rates):
        step = last_step - len(rates) + index + 1
        yield {
            "step": {
                "epoch": epoch,
                "step": step,
                "samples": int(counts[index]),
                "ids": f"{digests[index] % 2**64:016x}",
                "lr": rate,
                "loss_sum": losses[index],
                "grad_norm": norms[0, index].item(),
                "grad_norm_spread": spread[index],
                **({kind: own for kind, own in logged[index].items() if own} if logged else {}),
            }
        }
        if index in prints:
            held = {"sharded": True} if sharded else {}
            yield {"fingerprint": {"epoch": epoch, "step": step, **held, **_by_kind(prints[index])}}


def _by_kind(prints: Tensor) -> Mapping[str, list[str]]:
    """Of (ranks, kinds, bytes): for each kind that of every rank, in hexadecimal."""
    return {kind: [own.numpy().tobytes().hex() for own in prints[:, index]] for index, kind in enumerate(FINGERPRINTED)}
