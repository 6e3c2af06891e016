"""A net divided into parts, one on each rank, through which a batch passes in micro-batches (Huang et al., GPipe).

While the second rank computes micro-batch 0, the first one computes micro-batch 1. Every rank has the inputs, and the
outputs at the end: the module computes its loss as it does in one process, the same on each rank. The gradient of the
outputs passes through the parts in the other direction.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lockstep.base.config_error import config_error
from lockstep.base.messages import group_device
from lockstep.base.random_state import has_dropout, preserve_generators, seed_by

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
MAX_DIM = 8


class PartOfPipeline:
    """Called like the net, by every rank with the same inputs, it returns the outputs of the last part.

    part: the stages of this rank. micro_batches: in how many a batch is divided, fewer if it has fewer samples.
    recomputes: whether backward computes each micro-batch once more, so that its activations are not kept until then.
    draws: whether layers draw random numbers. shared: parameters that other ranks use, too, each with their group.
    buffers: those of each part, which every rank takes after a training step's forward, for checkpoints.
    message_device: of tensors that are sent: gloo sends none of a GPU.
    shapes: the heads of messages by what was computed, so that each is sent once.
    """

    def __init__(
        self,
        net: nn.Module,
        stages: Sequence[nn.Module],
        micro_batches: int,
        device: torch.device,
        recomputes: bool = False,
    ) -> None:
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        self.micro_batches, self.device, self.recomputes = micro_batches, device, recomputes
        self.message_device = torch.device(group_device())
        self.draws = has_dropout(net)
        parts = [nn.ModuleList(part) for part in divide(stages, self.last + 1)]
        self.part, self.buffers = parts[self.rank], [[*part.buffers()] for part in parts]
        self.shared: dict[Tensor, Any] = {}
        for parameter, owners in place_parameters(net, parts).items():
            if len(owners) > 1:
                group = dist.new_group([*owners])  # by every rank, in one order
                if self.rank in owners:
                    self.shared[parameter] = group
        self.shapes: dict[Any, tuple[torch.dtype, tuple[int, ...]]] = {}
        self.sent: list[tuple[Any, Tensor]] = []

    def __call__(self, inputs: Tensor, *rest: Any, **options: Any) -> Tensor:
        if rest or options or not isinstance(inputs, Tensor) or inputs.requires_grad:
            reason = "it sends one tensor from part to part, and the net is called with something else"
            raise config_error("strategy", "pipeline", reason, "strategy=ddp, or a net that takes one tensor of data")
        if not torch.is_grad_enabled():
            return self.outputs([outputs for _, outputs in self.forward(inputs)], inputs)
        return _Pass.apply(torch.ones((), requires_grad=True), self, inputs)  # type: ignore[no-any-return]

    def forward(self, inputs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the inputs and the outputs of this rank's part, of each micro-batch."""
        passes = []
        seed = int(torch.randint(2**62, ())) if self.draws and torch.is_grad_enabled() else None
        for index, micro_batch in enumerate(inputs.chunk(self.micro_batches)):
            key = micro_batch.dtype, micro_batch.shape
            entering = micro_batch if self.rank == 0 else self.receive(self.rank - 1, key)
            if self.rank and torch.is_grad_enabled() and entering.is_floating_point():
                entering.requires_grad_()
            with self.generators(seed, index):
                if self.recomputes and torch.is_grad_enabled():
                    outputs: Tensor = checkpoint(self.compute, entering, use_reentrant=False)
                else:
                    outputs = self.compute(entering)
            if self.rank < self.last:
                self.send(outputs.detach(), self.rank + 1, key)
            passes.append((entering, outputs))
        self.wait()
        for rank, buffers in enumerate(self.buffers if torch.is_grad_enabled() else ()):
            for buffer in buffers:
                dist.broadcast(buffer, src=rank)
        return passes

    def compute(self, inputs: Tensor) -> Tensor:
        """Return the outputs of this rank's part."""
        for stage in self.part:
            inputs = stage(inputs)
        return inputs

    def outputs(self, parts: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """Return the outputs of the last rank, on every rank."""
        key = inputs.dtype, inputs.shape, "outputs"
        full = torch.cat([*parts]).detach() if self.rank == self.last else self.empty(self.last, key, self.device)
        if self.rank == self.last:
            self.head(full, key, range(self.last))
        dist.broadcast(full, src=self.last)
        return full

    def backward(self, passes: Sequence[tuple[Tensor, Tensor]], gradient: Tensor) -> None:
        """Add the gradients of this rank's parameters, given that of the outputs of a full batch."""
        before = {parameter: parameter.grad for parameter in self.shared}
        for parameter in self.shared:
            parameter.grad = None
        buffers = [(buffer, buffer.clone()) for buffer in self.part.buffers() if self.recomputes]
        rows = torch.split(gradient, [len(outputs) for _, outputs in passes]) if self.rank == self.last else ()
        for index, (entering, outputs) in enumerate(passes):
            if self.rank == self.last:
                received = rows[index]
            else:
                buffer = torch.empty(outputs.shape, dtype=outputs.dtype, device=self.message_device)
                received = self.receive_into(buffer, self.rank + 1)
            if outputs.requires_grad:
                torch.autograd.backward(outputs, received)
            if self.rank:
                leaving = torch.zeros_like(entering) if entering.grad is None else entering.grad
                self.begin_send(leaving, self.rank - 1)
        self.wait()
        for buffer, value in buffers:  # BatchNorm has counted the micro-batches once more
            buffer.copy_(value)
        self.add_shared(before)

    def add_shared(self, before: Mapping[Tensor, Tensor | None]) -> None:
        """Sum over ranks the gradients of parameters that several of them use, and add what was accumulated before."""
        for parameter, group in self.shared.items():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient, group=group)
            earlier = before[parameter]
            parameter.grad = gradient if earlier is None else earlier + gradient

    # messages

    def send(self, tensor: Tensor, to: int, key: Any) -> None:
        """Begin to send a tensor, which `wait` keeps until it is received."""
        self.head(tensor, key, [to])
        self.begin_send(tensor, to)

    def begin_send(self, tensor: Tensor, to: int) -> None:
        tensor = tensor.to(self.message_device).contiguous()
        self.sent.append((dist.isend(tensor, to), tensor))

    def receive(self, source: int, key: Any) -> Tensor:
        return self.receive_into(self.empty(source, key, self.message_device), source)

    def receive_into(self, tensor: Tensor, source: int) -> Tensor:
        dist.recv(tensor, source)
        return tensor.to(self.device)

    def head(self, tensor: Tensor, key: Any, to: Sequence[int]) -> None:
        """Send the type and the shape of what is computed of a batch of one shape, once."""
        if (key := (*key, "sent")) not in self.shapes:
            self.shapes[key] = tensor.dtype, (*tensor.shape,)
            numbers = [DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
            head = torch.tensor(numbers + [0] * (MAX_DIM + 2 - len(numbers)), device=self.message_device)
            self.sent += [(dist.isend(head, rank), head) for rank in to]

    def empty(self, source: int, key: Any, device: torch.device) -> Tensor:
        """Return a tensor of the type and shape that a rank sends."""
        if (key := (*key, "received")) not in self.shapes:
            head = torch.empty(MAX_DIM + 2, dtype=torch.int64, device=self.message_device)
            dist.recv(head, source)
            kind, dim, *sizes = head.tolist()
            self.shapes[key] = DTYPES[kind], (*sizes[:dim],)
        dtype, shape = self.shapes[key]
        return torch.empty(shape, dtype=dtype, device=device)

    def wait(self) -> None:
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()

    @contextmanager
    def generators(self, seed: int | None, index: int) -> Iterator[None]:
        """Let the layers of each part and micro-batch draw numbers of their own, and all ranks go on with the same."""
        if seed is None:
            yield
            return
        with preserve_generators([self.device]):
            seed_by(seed, self.rank, index)
            if self.device.type == "cuda":
                torch.cuda.manual_seed(torch.initial_seed())
            yield


class _Pass(torch.autograd.Function):
    """The outputs of a pipeline, whose backward is the pipeline's."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, pipeline: PartOfPipeline, inputs: Tensor) -> Tensor:
        ctx.pipeline = pipeline
        with torch.enable_grad():
            ctx.passes = pipeline.forward(inputs)
        return pipeline.outputs([outputs for _, outputs in ctx.passes], inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.pipeline.backward(ctx.passes, gradient)
        return None, None, None


def place_parameters(net: nn.Module, parts: Sequence[nn.Module]) -> dict[nn.Parameter, Sequence[int]]:
    """Give each parameter of a net the `owners` whose parts use it, and move it to the meta device on other ranks."""
    owners: dict[nn.Parameter, list[int]] = {}
    for rank, part in enumerate(parts):
        for parameter in part.parameters():
            owners.setdefault(parameter, []).append(rank)
    placed = {parameter: parameter for parameter in owners}
    for parameter, ranks in owners.items():
        if dist.get_rank() not in ranks:
            placed[parameter] = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        placed[parameter].owners = ranks  # type: ignore[attr-defined]
    for layer in (*net.modules(), *(layer for part in parts for layer in part.modules())):
        for name, parameter in [*layer.named_parameters(recurse=False, remove_duplicate=False)]:
            setattr(layer, name, placed.get(parameter, parameter))
    return {placed[parameter]: ranks for parameter, ranks in owners.items()}


def divide(stages: Sequence[nn.Module], parts: int) -> list[Sequence[nn.Module]]:
    """Return the stages in `parts` groups of neighbours, of which the one with most parameters has the fewest."""
    totals = [0, *accumulate(sum(weight.numel() for weight in stage.parameters()) for stage in stages)]

    @cache
    def cuts(end: int, groups: int) -> tuple[int, tuple[int, ...]]:
        """Return the parameters of the largest of the groups before a stage, and where each ends."""
        if groups == 1:
            return totals[end], (end,)
        options = []
        for start in range(groups - 1, end):
            largest, ends = cuts(start, groups - 1)
            options.append((max(largest, totals[end] - totals[start]), (*ends, end)))
        return min(options)

    _, ends = cuts(len(stages), parts)
    return [stages[start:end] for start, end in zip((0, *ends), ends, strict=False)]
