"""The base class of strategies. Its defaults are those of one process on one device."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.base.constraints import Rules

if TYPE_CHECKING:
    import torch
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import nn
    from torch.optim import Optimizer

    from lockstep.plan.plan import Plan


NET = "net"  # the attribute of a LightningModule that strategies may replicate, divide into stages, or shard


def net_of(module: "nn.Module") -> "nn.Module | None":
    """Return the submodule `net` of a LightningModule, also behind a proxy; None if it has none, or another module."""
    net = dict(module.named_modules(remove_duplicate=False)).get(NET)
    return None if hasattr(net, "automatic_optimization") else net


def stages_of(net: "nn.Module") -> "list[nn.Module]":
    """Return the stages of a net, one after the other: those that it names, or the modules of a Sequential."""
    from torch import nn

    stages = getattr(net, "stages", net.children() if isinstance(net, nn.Sequential) else ())
    return [*stages] if isinstance(stages, Iterable) else []


class Strategy:
    """The base of frozen dataclasses with a literal `name` and the options of conf/strategy/NAME.yaml as fields.

    in_process: whether to train in the process of the command, if there is one process; None: if at a terminal.
    share_device: whether several ranks may use the same GPU, if there are fewer GPUs than ranks.
    micro_batches: the number of parts in which a batch passes through the net, one after the other.
    broadcast_buffers: whether each optimizer step begins with rank 0's buffers; None: with those but BatchNorm's.
    one_device: whether it trains on a single device.
    distributed: whether there is a rank for each device, in a process group; else there is one process.
    replicates, virtual: whether this process has a replica of the net, or runs a rank in turn, for each device.
    refuses_compiling: for a strategy whose net cannot be compiled, the reason.
    sharded: whether each rank stores a part of the optimizer state, and of the parameters if it `shards_weights`;
        "optimizer" if the parameters are the same on all ranks.
    batch_key: for `batch_layout`: the layout's name, or "" for the strategy's, and keys of the run's metadata.
    order: a name if sums are added in another order than by other strategies of that `batch_key`.
    """

    name: str
    in_process: bool | None = False
    share_device: bool = False
    micro_batches: int = 1
    broadcast_buffers: bool | None = False

    one_device: ClassVar[bool] = False
    distributed: ClassVar[bool] = False
    replicates: ClassVar[bool] = False
    virtual: ClassVar[bool] = False
    refuses_compiling: ClassVar[str] = ""
    sharded: ClassVar[bool | str] = False
    batch_key: ClassVar[tuple[str, ...]] = ("", "devices", "world_size")
    order: ClassVar[str] = ""

    def workers(self, devices: int) -> int:
        """Return how many ranks, replicas or virtual ranks a machine has."""
        return devices if self.distributed or self.replicates or self.virtual else 1

    def model_parallel_size(self, devices: int) -> int:
        """Return how many consecutive ranks compute together, on the same samples."""
        return 1

    def data_parallel_size(self, devices: int) -> int:
        """Return how many workers of a machine take different samples of a batch."""
        return self.workers(devices) // self.model_parallel_size(devices)

    def virtual_ranks(self, plan: "Plan") -> int:
        """Return the number of ranks that one process runs in turn."""
        return plan.devices if self.virtual else 1

    def gradient_sync(self, plan: "Plan") -> str:
        """Return how gradients are averaged over ranks, for records and metrics."""
        return "none"

    def rules(self, plan: "Plan") -> Rules:
        """Yield the rules of plans that the strategy can run."""
        fits, reason = not (plan.compile and self.refuses_compiling), f"strategy={self.name} {self.refuses_compiling}"
        yield fits, "compile", reason, "compile=false, or strategy=ddp"
        fits, reason = plan.num_nodes == 1 or self.distributed, f"strategy={self.name} is one process on one machine"
        yield fits, "num_nodes", reason, "num_nodes=1, or strategy=ddp"

    def described(self, plan: "Plan") -> dict[str, str | int]:
        """Return what identifies a run beside the options of all strategies, for records and metrics."""
        return {}

    def shared_buffers(self, module: "nn.Module") -> list[str]:
        """Return the names of the buffers that all ranks take of rank 0 before each optimizer step."""
        from torchmetrics import Metric

        from lockstep.base.private_api.torch import BATCHNORM

        names = []
        for path, layer in module.named_modules() if self.broadcast_buffers is not False else ():
            if not isinstance(layer, Metric) and (self.broadcast_buffers or not isinstance(layer, BATCHNORM)):
                names += [f"{path}.{name}".lstrip(".") for name, _ in layer.named_buffers(recurse=False)]
        return names

    def shards_weights(self, plan: "Plan") -> bool:
        """Whether each rank stores a part of each parameter, so that all ranks must meet in each forward."""
        return False

    def note(self, plan: "Plan") -> str:
        """Return a line for the start of a run, or "" for none."""
        return ""

    def check_callback(self, plan: "Plan", path: str) -> None:
        """Raise if a callback, by the import path of its class, cannot run beside a plan's model."""

    def errors(self) -> AbstractContextManager[None]:
        """Return a context that raises a ConfigError for errors which the strategy explains."""
        return nullcontext()

    def devices(self, plan: "Plan") -> "list[torch.device]":
        """Return the devices of this process. Batches are moved to the first one, where losses are computed."""
        import torch

        if plan.accelerator != "gpu":
            return [torch.device("cpu")]
        indices = [torch.cuda.current_device()] if self.distributed else range(plan.devices)
        return [torch.device("cuda", index) for index in indices]

    def mirrored(self, plan: "Plan") -> "tuple[Strategy, int]":
        """Return the strategy and the devices of a machine by which `engine=both` repeats a run in plain torch."""
        return self, plan.devices

    def check_module(self, module: "nn.Module", devices: int) -> None:
        """Raise if so many devices of a machine cannot have a module, which may be without memory for its weights."""

    def lay_out(self, plan: "Plan", module: "nn.Module") -> None:
        """Lay out the parameters of a module over ranks, in place, once, before optimizers exist."""

    def prepare_optimizers(self, plan: "Plan", optimizers: "Sequence[Optimizer]") -> None:
        """Prepare new optimizers for ranks, or raise for one that the strategy cannot run."""

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        """Return Lightning's strategy, or one derived from it. Processes and their group exist already."""
        from lightning.pytorch.strategies import SingleDeviceStrategy

        return SingleDeviceStrategy(self.devices(plan)[0])

    @classmethod
    def batch_layout(cls, run_metadata: Mapping[str, Any]) -> tuple[object, ...]:
        """Return a key, equal for runs that split batches alike: for dropout masks and BatchNorm statistics."""
        kind, *counts = cls.batch_key
        return kind or run_metadata["strategy"], *(run_metadata[key] for key in counts)

    @property
    def resumes_as(self) -> str:
        """Return a key of strategies that resume each other's checkpoints even if each rank draws its own masks."""
        return "ddp" if self.batch_key[0] == "ddp" else self.name
