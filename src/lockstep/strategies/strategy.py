"""The questions that a strategy answers, and the answers of one process on one device."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.config_error import config_error, not_negative

if TYPE_CHECKING:
    import torch
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from lockstep.parallel.sharded_module import ShardedModule
    from lockstep.plan import Plan

Forward = Callable[["Tensor"], Any]
"""From inputs to the net's outputs: a tensor, or for a task that takes it a structure of tensors."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Wrapped:
    """How the raw engine computes the training step of a module under a strategy."""

    forward: Callable[..., Any]
    """The step; backward from its loss leads to gradients over all ranks, at the latest after `synchronise`."""
    synchronise: Callable[[], None] = _nothing
    """To be called after the last backward of an optimizer step. Under DDP backward has done it already."""
    accumulating: Callable[[], AbstractContextManager[None]] = nullcontext
    """Around forward and backward of all batches of a step but the last: they need not be synchronised."""
    ddp: Any = None
    """The DistributedDataParallel that averages the gradients, if one does."""


def plain_net(module: Any) -> Any:
    """Return the net of a TaskModule, which strategies may divide or replicate alone; of other modules all."""
    return module.net if getattr(module, "computes_with_net", False) else module


class Strategy:
    """A frozen dataclass with a literal `name` and the options of conf/strategy/NAME.yaml as its fields.

    Where all is one process, it may be that of the command (`in_process`; None: where somebody sits at a terminal).
    """

    name: str
    in_process: bool | None = False
    max_restarts: int = 0
    """How often all ranks are started anew after one has failed."""
    share_device: bool = False
    """Whether several ranks lie on each GPU in turn, where there are fewer GPUs."""
    micro_batches: int = 1
    """Parts in which a batch goes through the net, one after the other."""

    start: ClassVar[Literal["elastic", "spawn"]] = "spawn"
    """By torch's elastic agent, or by torch.multiprocessing."""
    distributed: ClassVar[bool] = False
    """Whether there is a rank for each device, and the ranks form a process group. Else there is one process."""
    refuses_modules: ClassVar[tuple[str, str] | None] = None
    """Of a strategy that trains no LightningModule: why, and what to write instead."""
    sharded: ClassVar[bool] = False
    """Whether each rank holds a shard of every parameter, so that ranks' weights differ by right."""

    def __post_init__(self) -> None:
        not_negative("strategy.max_restarts", self.max_restarts)

    @classmethod
    def ranks(cls, devices: int) -> int:
        """Processes on a machine with so many devices."""
        return devices if cls.distributed else 1

    @classmethod
    def sharers(cls, devices: int) -> int:
        """How many devices of a machine share a batch, and compute side by side."""
        return cls.ranks(devices)

    @classmethod
    def replicas(cls, devices: int) -> int:
        """Copies of the net in one process, each of which takes a chunk of its batch."""
        return 1

    @classmethod
    def virtual_ranks(cls, devices: int) -> int:
        """Ranks that one process is, one after the other."""
        return 1

    @property
    def offers_shared_devices(self) -> bool:
        """Whether `share_device` is one of its options."""
        return is_dataclass(self) and any(field.name == "share_device" for field in fields(self))

    def gradient_sync(self, plan: "Plan") -> str:
        """How gradients are averaged over ranks, as a record says it."""
        return "none"

    def check(self, plan: "Plan") -> None:
        """Refuse a plan that the strategy cannot run.

        Raises:
            ConfigError: names the key to change.
        """
        if plan.model.lightning and self.refuses_modules is not None:
            raise config_error("strategy", self.name, *self.refuses_modules)
        if plan.num_nodes > 1 and not self.distributed:
            why = f"strategy={self.name} is one process on one machine"
            raise config_error("num_nodes", plan.num_nodes, why, "num_nodes=1, or strategy=ddp")

    def check_optimizer(self, kinds: Collection[str]) -> None:
        """Refuse an optimizer of classes with these names that would compute something else than in one process.

        Raises:
            ConfigError: names it.
        """

    # how it trains

    def devices(self, plan: "Plan") -> "list[torch.device]":
        """The devices of this process, its first one first: where batches arrive and losses are computed."""
        import torch

        return [torch.device("cuda", torch.cuda.current_device()) if plan.accelerator == "gpu" else torch.device("cpu")]

    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        """How this process computes the net's outputs.

        A function and no module: `net` stays the owner of its parameters, so no strategy changes their names.
        """
        return net.__call__

    def move_to_devices(self, plan: "Plan", module: "nn.Module") -> None:
        """Move the module to where it computes."""
        module.to(self.devices(plan)[0])

    def wrap(self, plan: "Plan", module: Any) -> Wrapped:
        """For the raw engine: move the module to where it computes, and put around its step what the strategy needs."""
        self.move_to_devices(plan, module)
        return Wrapped(module.training_step)

    def sharded_module(self, module: Any) -> "ShardedModule | None":
        """What holds a LightningModule's weights in shards, once it is wrapped; None where they are whole anyway."""
        return None

    def computing(self, module: Any) -> AbstractContextManager[None]:
        """Around a LightningModule's own code: its weights are whole. To be entered by every rank."""
        sharded = self.sharded_module(module)
        return nullcontext() if sharded is None else sharded.computing()

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        """For Lightning: the wrapping alone, since the processes are there, and so is their group."""
        from lightning.pytorch.strategies import SingleDeviceStrategy

        return SingleDeviceStrategy(self.devices(plan)[0])

    # shards and whole tensors: every rank calls these at the same moments

    def held(self, tensor: "Tensor") -> "Tensor":
        """What this rank holds of a tensor."""
        return tensor

    def whole(self, tensor: "Tensor") -> "Tensor":
        """All of a tensor, on every rank."""
        return tensor

    def part(self, whole: "Tensor", like: "Tensor") -> "Tensor":
        """What belongs in the place of `like`, of a whole tensor that every rank has."""
        return whole.to(like.device)

    def norms(self, gradients: "Sequence[Tensor]") -> "Sequence[Tensor]":
        """Of each gradient over all ranks."""
        from lockstep.private_api.torch import norms

        return norms(gradients)

    def state_dict(self, net: "nn.Module") -> "Mapping[str, Tensor]":
        """Whole parameters and buffers."""
        state: Mapping[str, Tensor] = net.state_dict()
        return state

    def load_state_dict(self, net: "nn.Module", state: "Mapping[str, Tensor]", strict: bool = True) -> None:
        """Of whole parameters and buffers."""
        net.load_state_dict(state, strict=strict)

    def optimizer_state(self, optimizer: "Optimizer") -> dict[str, Any]:
        """The optimizer's state_dict, of whole tensors."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: "Optimizer", state: Mapping[str, Any]) -> None:
        """Of whole tensors."""
        optimizer.load_state_dict({**state})

    def other_ranks(self, net: "nn.Module") -> "Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]":
        """Of virtual ranks above 0 the random state and the buffers, for a checkpoint."""
        return ()

    def restore_other_ranks(
        self, net: "nn.Module", states: "Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]"
    ) -> None:
        """What `other_ranks` gave."""

    # what it may be compared with, and gone on from

    @classmethod
    def batch_split(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        """How a batch is split: which masks are drawn, and over which samples BatchNorm's statistics are.

        Args:
            heading: the first line of a run's record.
        """
        return heading["strategy"], heading["devices"], heading["world_size"]

    @classmethod
    def summation(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        """In which order sums are added: runs that are equal in this are bit-equal."""
        return cls.batch_split(heading)

    @property
    def resumes_as(self) -> str:
        """Where each rank draws masks of its own, a checkpoint is gone on from by a strategy of the same word."""
        return self.name


class Distributed(Strategy):
    """A rank for each device, each with a share of every batch, however ranks start and whatever they hold."""

    distributed: ClassVar[bool] = True

    @classmethod
    def batch_split(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        """A rank's share, its masks and its statistics depend on the number of ranks alone."""
        return "ddp", heading["world_size"]

    @property
    def resumes_as(self) -> str:
        return "ddp"


def every_device(plan: "Plan") -> "list[torch.device]":
    """All devices of a machine, for one process."""
    import torch

    if plan.accelerator == "gpu":
        return [torch.device("cuda", index) for index in range(plan.devices)]
    return [torch.device("cpu")]
