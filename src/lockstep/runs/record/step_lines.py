"""The lines of optimizer steps, from the values of all ranks; numbers of a batch are kept until they are read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

JOIN: dict[str, Callable[[Iterable[Any]], Any]] = {"min": min, "max": max}  # else the sum
Line = Mapping[str, Mapping[str, Any]]  # of the record: `{kind: fields}`
# 2^64 over the golden ratio: multiples of it are spread evenly, so that ids and positions do not collide
STRIDE = np.uint64(0x9E3779B97F4A7C15)

Scalar = Tensor | float  # of one step, read later: a tensor stays on its GPU, so that nothing waits for it
BatchStats = tuple[Scalar, ...]  # the loss times its weight, the samples, and what the loss is a mean over
LoggedValues = Mapping[str, Mapping[str, tuple[Scalar, float, str]]]
"""What a module has logged on a step, by `logged` or `metrics` and name: a total, its weight, and how ranks are reduced
(mean: the total is of value times weight; sum, min, max)."""


def to_scalar(number: Any) -> Scalar:
    """Return the value of a number or tensor, but on a GPU a float64 tensor; on a CPU they would fragment memory."""
    if getattr(number, "is_cuda", False):
        return cast(Tensor, number.detach().double())
    return float(number.item() if isinstance(number, Tensor) else number)  # `float` warns if it requires a gradient


def to_floats(numbers: Sequence[Scalar]) -> Sequence[float]:
    """Return the values of stored numbers; waits for each GPU once."""
    if not any(isinstance(number, Tensor) for number in numbers):
        return cast(Sequence[float], numbers)
    tensors = [torch.as_tensor(number) for number in numbers]
    if len({tensor.device for tensor in tensors}) > 1:
        tensors = [tensor.cpu() for tensor in tensors]
    floats: list[float] = torch.stack(tensors).double().tolist()
    return floats


def id_digests(batches: Sequence[Tensor], first_batch: int, batch_size: int, rank: int, world_size: int) -> Tensor:
    """Return an int64 for each batch of ids: the sum of a hash of each (sample id, its position in the epoch's order).

    A sum, so that ranks can add theirs in any order: equal digests mean that every sample was at its position.
    """
    lengths = torch.tensor([len(ids) for ids in batches])
    batch = torch.arange(len(batches)).repeat_interleave(lengths)
    within = torch.arange(len(batch)) - (lengths.cumsum(0) - lengths)[batch]
    positions = (first_batch + batch) * batch_size + rank + within * world_size
    ids = torch.cat([*batches]).cpu().numpy().astype(np.uint64)
    hashes = _mix_bits(ids * STRIDE + positions.numpy().astype(np.uint64))
    return torch.zeros(len(batches), dtype=torch.int64).index_add_(0, batch, torch.from_numpy(hashes.view(np.int64)))


def _mix_bits(numbers: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Map uint64 to uint64, every bit depending on every bit (Steele, Lea and Flood, SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def step_lines(
    ranks: Sequence[Mapping[str, Any]], rates: Sequence[float], epoch: int, last_step: int, sharded: bool | str = False
) -> Iterator[Line]:
    """Yield the lines of an epoch's steps up to `last_step`, each followed by its fingerprints if it has any.

    `ranks` has the columns of each rank. `loss_sum` is the mean over what counts (`weight`) times the samples,
    `grad_norm_spread` the largest difference of a rank's norm from rank 0's.
    """
    losses, counts, weights, norms = (
        torch.tensor([columns[key] for columns in ranks], dtype=torch.float64)
        for key in ("loss_sum", "samples", "weight", "grad_norm")
    )
    losses, counts, weights = losses.sum(0), counts.sum(0), weights.sum(0)
    losses = losses.where((weights == counts) | (weights == 0), losses / weights * counts)
    total_losses, total_counts, rank_0_norms = losses.tolist(), counts.tolist(), norms[0].tolist()
    equal = (norms == norms[0]) | (norms.isnan() & norms[0].isnan())
    spread = (norms - norms[0]).abs().masked_fill(equal, 0.0).amax(0).tolist()
    for index, rate in enumerate(rates):
        step = last_step - len(rates) + index + 1
        of_ranks = [columns["logged"][index] for columns in ranks]
        kinds = [kind for kind in ("logged", "metrics") if any(kind in values for values in of_ranks)]
        logged = {kind: _over_ranks([values.get(kind, {}) for values in of_ranks]) for kind in kinds}
        yield {
            "step": {
                "epoch": epoch,
                "step": step,
                "samples": int(total_counts[index]),
                "ids": f"{sum(columns['ids'][index] for columns in ranks) % 2**64:016x}",
                "lr": rate,
                "loss_sum": total_losses[index],
                "grad_norm": rank_0_norms[index],
                "grad_norm_spread": spread[index],
                **{kind: values for kind, values in logged.items() if values},
            }
        }
        fingerprints = [columns["fingerprints"].get(str(index)) for columns in ranks]
        if None not in fingerprints:
            by_kind = {kind: [each.get(kind) for each in fingerprints] for rank in fingerprints for kind in rank}
            yield {
                "fingerprint": {"epoch": epoch, "step": step, **({"sharded": sharded} if sharded else {}), **by_kind}
            }


def _over_ranks(ranks: Sequence[Mapping[str, tuple[float, float, str]]]) -> dict[str, float]:
    """Return one step's logged values over the ranks that have logged them with a weight."""
    values = {}
    for name in sorted({name for logged in ranks for name in logged}):
        totals = [logged[name] for logged in ranks if name in logged]
        values[name] = reduced(totals[0][2], [(total, weight) for total, weight, _ in totals])
    return {name: value for name, value in values.items() if value is not None}


def join(reduction: str, totals: Sequence[Any]) -> tuple[Any, float]:
    """Join totals, each with its weight; those without weight do not count. A total of a mean is value times weight."""
    counted = [total for total, weight in totals if weight]
    return JOIN.get(reduction, sum)(counted) if counted else 0.0, sum(weight for _, weight in totals)


def reduced(reduction: str, totals: Sequence[Any]) -> float | None:
    """Return the value of totals and their weights, one for each rank; None if nothing was logged."""
    total, weight = join(reduction, totals)
    if not weight:
        return None
    return float(total / weight) if reduction == "mean" else float(total)
