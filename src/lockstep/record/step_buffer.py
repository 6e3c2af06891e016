"""The optimizer steps that have no line in the record yet: a rank's values of them, and the lines of all ranks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.plan import Plan
from lockstep.run_files import FINGERPRINTED
from lockstep.sums.running import LOSS, SAMPLES, SUMS, WEIGHT, BatchStats, Scalar, stack_stats, to_floats, to_scalar

Line = Mapping[str, Mapping[str, Any]]  # of the record: `{kind: fields}`
# 2^64 over the golden ratio: multiples of it are spread evenly, so that ids and positions do not collide
STRIDE = np.uint64(0x9E3779B97F4A7C15)

LoggedValues = Mapping[str, Mapping[str, tuple[Scalar, float, str]]]
"""The numbers (`logged`) and metrics that a LightningModule has logged on a step, by name: a total, its weight, and how
ranks are reduced (mean: the total is of value times weight; sum, min, max).
"""


class StepBuffer:
    """The steps of one rank from `first_batch` (from 0) of an epoch on; each batch is added before its step.

    `carried`: the sums (`window`) and the id digest of the batches before it that belong to its optimizer step.
    """

    def __init__(self, plan: Plan, rank: int, first_batch: int, carried: Mapping[str, Tensor] | None = None) -> None:
        self.plan, self.rank, self.first_batch = plan, rank, first_batch
        self.carried = carried or {
            "window": torch.zeros(SUMS, dtype=torch.float64),
            "ids": torch.tensor(0),
        }
        self.batches: list[tuple[BatchStats, Tensor, int]] = []  # with the sample ids, and the index of the step
        self.steps: list[tuple[float, Sequence[Scalar], LoggedValues]] = []  # the rate, and norms of gradients
        self.fingerprints: dict[str, Mapping[str, str]] = {}  # by the index of a step, as JSON has it

    @property
    def next_batch(self) -> int:
        """Return the number of batches of the epoch that are done."""
        return self.first_batch + len(self.batches)

    def batch(self, stats: BatchStats, ids: Tensor) -> None:
        self.batches.append((stats, ids, len(self.steps)))

    def step(self, lr: float, norms: Sequence[Tensor], logged: LoggedValues | None = None) -> None:
        self.steps.append((lr, [*map(to_scalar, norms)], logged or {}))

    def columns(self) -> tuple[Mapping[str, Any], Mapping[str, Tensor]]:
        """Return this rank's values of each step, ready for JSON, and the sums of an unfinished step."""
        plan, steps = self.plan, len(self.steps)
        stats, ids, step_of_batch = zip(*self.batches, strict=True)
        sums = torch.zeros(steps + 1, SUMS, dtype=torch.float64)
        digests = torch.zeros(steps + 1, dtype=torch.int64)
        sums[0], digests[0] = self.carried["window"], self.carried["ids"]
        sums.index_add_(0, torch.tensor(step_of_batch), stack_stats(stats))
        batch_digests = id_digests(ids, self.first_batch, plan.batch_size, self.rank, plan.world_size)
        digests.index_add_(0, torch.tensor(step_of_batch), batch_digests)
        norms = [(index, norm) for index, (_, norms, _) in enumerate(self.steps) for norm in norms]
        squares = torch.tensor(to_floats([norm for _, norm in norms]), dtype=torch.float64).square()
        step_of_norm = torch.tensor([index for index, _ in norms], dtype=torch.int64)
        norm = torch.zeros(steps, dtype=torch.float64).index_add_(0, step_of_norm, squares).sqrt()
        columns = {
            "loss_sum": sums[:steps, LOSS].tolist(),
            "samples": sums[:steps, SAMPLES].tolist(),
            "weight": sums[:steps, WEIGHT].tolist(),
            "grad_norm": norm.tolist(),
            "ids": digests[:steps].tolist(),
            "logged": [
                {
                    kind: {name: (float(total), weight, how) for name, (total, weight, how) in values.items()}
                    for kind, values in step.items()
                }
                for _, _, step in self.steps
            ],
            "fingerprints": self.fingerprints,
        }
        return columns, {"window": sums[steps], "ids": digests[steps]}


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
    ranks: Sequence[Mapping[str, Any]], rates: Sequence[float], epoch: int, last_step: int, sharded: bool = False
) -> Iterator[Line]:
    """Yield the lines of an epoch's steps up to `last_step`, each followed by its fingerprints if it has any.

    `ranks` has the columns of each rank. `loss_sum` is the mean over what counts (`weight`) times the samples.
    `grad_norm_spread` is the largest difference of a rank's norm from rank 0's. Where gradients are all-reduced it is 0
    by construction: fingerprints show whether ranks have the same weights, unless these are `sharded`.
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
            by_kind = {kind: [fingerprint[kind] for fingerprint in fingerprints] for kind in FINGERPRINTED}
            yield {"fingerprint": {"epoch": epoch, "step": step, **({"sharded": True} if sharded else {}), **by_kind}}


def _over_ranks(ranks: Sequence[Mapping[str, tuple[float, float, str]]]) -> dict[str, float]:
    """Return one step's logged values over the ranks that have logged them with a weight."""
    values = {}
    for name in sorted({name for logged in ranks for name in logged}):
        entries = [logged[name] for logged in ranks if name in logged and logged[name][1]]
        if entries:
            totals, weights, (how, *_) = zip(*entries, strict=True)
            reduce = {"min": min, "max": max}.get(how, sum)
            values[name] = reduce(totals) / (sum(weights) if how == "mean" else 1)
    return values
