"""When a checkpoint is due, what goes into it beside the engine's own state, and which one is the best."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.checkpoint.content import PREFIX, SECTION, Content, Progress, RankState
from lockstep.checkpoint.files import BEST, FOLDER, LAST, PREVIOUS, hardlink, write_whole
from lockstep.checkpoint.identity import identity
from lockstep.checkpoint.reading import of_the_file
from lockstep.disk import find_disk_error, write_error
from lockstep.parallel.messages import gather_bytes
from lockstep.plan import Plan
from lockstep.random_state import random_state, restore_random_state
from lockstep.record.fingerprint import buffers_of
from lockstep.record.finite_losses import not_finite
from lockstep.record.recorder import Recorder
from lockstep.record.run_metadata import depends_on_world
from lockstep.safe_loading import load

if TYPE_CHECKING:
    from lockstep.parallel.virtual_ranks import VirtualRanks


class CheckpointManager:
    """One for each rank; all of them call the same methods at the same moments, and rank 0 writes."""

    def __init__(self, plan: Plan, rank: int, recorder: Recorder, virtual: "VirtualRanks | None" = None) -> None:
        """`virtual`: the ranks that this process runs in turn, if there are several."""
        self.plan, self.rank, self.recorder, self.virtual = plan, rank, recorder, virtual
        self.tensors = plan.strategy.tensors
        self.monitor = plan.monitor
        self.best: float | None = None
        self.best_yet = False
        self.folder = Path(plan.run_dir) / FOLDER

    @property
    def last(self) -> Path:
        return self.folder / LAST

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after an optimizer step, whatever its place in the epoch."""
        every = self.plan.checkpoint.every_n_steps
        return every is not None and step % every == 0

    def restore(self, content: Content, net: nn.Module) -> Mapping[str, Tensor]:
        """Restore this rank's random state, gradients, buffers and sums from a checkpoint; return the sums."""
        with of_the_file(Path(str(self.plan.ckpt_path))):
            sums = self._restore_rank(content, net)
        if self.plan.resume and content.best and self.monitor[0] in ("", content.best[0]):
            self.best = content.best[1]  # in a new folder the best is that of its own epochs
            self.monitor = content.best[0], self.monitor[1]
        if self.rank == 0 and Path(str(self.plan.ckpt_path)).resolve() == (self.folder / PREVIOUS).resolve():
            hardlink(self.folder / PREVIOUS, LAST)  # don't rotate a corrupt last.ckpt
        return sums

    def _restore_rank(self, content: Content, net: nn.Module) -> Mapping[str, Tensor]:
        strategy = self.plan.strategy
        state = content.of_rank(self.rank, self.plan.world_size, strategy.sharded)
        if self.virtual is not None and len(content.ranks) == self.virtual.count > 1:
            state = replace(state, random=content.ranks[0].random)
            self.virtual.restore([(other.random, other.buffers) for other in content.ranks[1:]])
        if state.random:
            restore_random_state(state.random, strategy.devices(self.plan))
        for name, parameter in net.named_parameters():
            if name in state.gradients:
                parameter.grad = self.tensors.shard_like(state.gradients[name], like=parameter)
        for name, buffer in buffers_of(net).items():
            if name in state.buffers:
                buffer.copy_(state.buffers[name])
        self.recorder.load_partial(state.sums)
        return state.sums

    def extra_state(
        self,
        position: Progress,
        results: Mapping[str, float],
        sums: Mapping[str, Tensor],
        net: nn.Module,
        module: Mapping[str, Any] | None = None,
        ended: bool = False,
        prefix: str = PREFIX,
    ) -> dict[str, Any]:
        """What a checkpoint of this moment holds under `lockstep`, for rank 0 to save. The record is written so far.

        Args:
            results: the latest metrics.
            sums: of this rank, since they last met those of the others.
            net: its gradients are saved where an optimizer step is under way, or may be, by what the net does itself.
            module: of a LightningModule, what this rank knows of the epoch under way.
            ended: a callback ends training here.
            prefix: in front of the names of weights.

        Raises:
            NotFinite: a weight is NaN or infinite, and the plan has `detect_nan`: such a checkpoint is worth nothing.
        """
        self.recorder.flush(position.epochs + 1, position.steps)
        self.recorder.sync()
        if self.plan.detect_nan:
            self._check_weights(position.steps)
        here = {name: own.cpu() for name, own in {**sums, **self.recorder.carried}.items()}
        under_way = self.plan.model.manual or position.batch % self.plan.steps.batches_per_step(position.epochs) > 0
        gradients = {
            name: self.tensors.full_tensor(own.grad).cpu()
            for name, own in net.named_parameters()
            if under_way and own.grad is not None
        }
        buffers = {name: own.cpu() for name, own in buffers_of(net).items()} if self.rank else {}  # the engine has 0's
        random = random_state(self.plan.strategy.devices(self.plan))
        ranks = self._gathered(RankState(random, here, gradients, buffers, module or {}))
        nothing = {name: torch.zeros_like(own) for name, own in here.items()}
        for generators, statistics in self.virtual.states() if self.virtual is not None else ():
            ranks.append(RankState(generators, nothing, gradients, statistics))
        own = identity(self.plan, depends_on_world(self.plan, self.recorder.net))
        best = None if self.best is None else (self.monitor[0], self.best)
        mark, best_yet = self.recorder.mark, self.best_yet
        content = Content(
            *(own, position, mark.lines, dict(results), best, best_yet, ranks, mark.size, mark.sha256),
            [*self.plan.objective.sums],
            prefix,
            ended,
        )
        self.best_yet = False
        return {SECTION: content.as_saved()}

    def update_best(self, metrics: Mapping[str, float]) -> None:
        """Note whether an epoch is better than all before it: the first of equals, rounded to float32; NaN is worst.

        Its checkpoint, which is saved next, is then the best, too.
        """
        name, mode = self.monitor
        value = torch.tensor(metrics[name], dtype=torch.float32).item()
        badness = math.inf if math.isnan(value) else value if mode == "min" else -value
        self.best_yet = self.best is None or badness < self.best
        if self.best_yet:
            self.best = badness

    @property
    def best_metrics(self) -> dict[str, str | float]:
        """For metrics.json: what best.ckpt is best by, whether less or more of it is better, and its value."""
        name, mode = self.monitor
        sign = 1 if mode == "min" else -1
        return {} if self.best is None else {"monitor": name, "mode": mode, "best": sign * self.best}

    def _check_weights(self, step: int) -> None:
        for name, weight in self.recorder.net.named_parameters():
            own = self.tensors.full_tensor(weight.detach())
            odd = own[~own.isfinite()]
            if len(odd):
                raise not_finite(f"after step {step} the weight {name}", odd[0].item())

    def _gathered(self, state: RankState) -> list[RankState]:
        """Of all ranks, on rank 0; what others return does not matter."""
        if not dist.is_initialized():
            return [state]
        packed = io.BytesIO()
        torch.save(vars(state), packed)
        states = [load(io.BytesIO(one)) for one in gather_bytes(packed.getvalue())]
        return [RankState(**one) for one in states] or [state]


def save(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint's file, whole or not at all; the one before it stays as previous.ckpt, the best as best.ckpt.

    Raises:
        ConfigError: there is no room, or no right, to write it.
    """
    write: Callable[[BinaryIO], None] = lambda file: torch.save(dict(checkpoint), file)  # noqa: E731
    best = BEST if SECTION in checkpoint and checkpoint[SECTION]["best_yet"] else ""
    try:
        write_whole(path, write, before=PREVIOUS, also=best)
    except (OSError, RuntimeError) as error:
        found = find_disk_error(error, path.parents[1])
        in_words = error.__context__ is None and "PytorchStreamWriter" in str(error)  # it may tell no more
        if found is None and not in_words:
            raise
        raise write_error(path.parents[1], found, f"{FOLDER}/{path.name}") from None
