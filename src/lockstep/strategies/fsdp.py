"""FSDP2: one process per device, each stores a shard of every parameter, its gradient and its optimizer state.

`fully_shard` is applied to each block and at the root: the weights of a block are gathered from all ranks while it
computes, and its gradient is reduced to shards. Checkpoints, digests and logs have full tensors.

Of a LightningModule the attribute `net` is sharded, if it holds all parameters and optimization is automatic. Any other
module may read and change any weight anywhere, so each rank needs all of them in each step: DDP averages its gradients,
and the states of its optimizers are divided over ranks. With `module=shard` any module is sharded as one block, whose
weights are gathered for each step.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.config_error import config_error, require
from lockstep.base.constraints import Rules
from lockstep.strategies.ddp import DDP, Replicated
from lockstep.strategies.strategy import Strategy, net_of

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from lockstep.plan.plan import Plan

NEEDS_FULL_TENSORS = {
    "LBFGS": "searches along one vector of all weights",
    "Adafactor": "computes with rows and columns of full weights",
    "Muon": "orthogonalizes full matrices",
    "Shampoo": "computes with full matrices",
    "SOAP": "computes with full matrices",
}
"""Optimizers that are not elementwise, by class name, and what they do."""

READS_NO_WEIGHTS = {
    *("DeviceStatsMonitor", "EarlyStopping", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary"),
    *("ProgressBar", "RichProgressBar", "ThroughputMonitor", "Timer", "TQDMProgressBar"),
}
"""Callbacks of Lightning that neither read nor write weights, but by the Trainer's checkpoints."""

EXPLAINED_OF_MODULE = {
    "got mixed torch.Tensor and DTensor": "a hook computes with weights, which a step or self(…) alone gathers",
    "FSDP expects uniform original parameter dtype": "weights of several dtypes cannot be gathered together",
}
"""Parts of torch's errors about a module that is sharded, and what they say."""


class Sharded(Replicated):
    """The base of strategies that store parts of parameters on ranks, if they `shards_weights` of a plan's module.

    Otherwise DDP averages gradients.
    sends_by_gloo: whether it can run on GPUs without nccl.
    explained: parts of torch's errors about what a module does with its net, and what they say.
    """

    sharded: ClassVar[bool | str] = True
    sends_by_gloo: ClassVar[bool] = False
    explained: ClassVar[Mapping[str, str]] = {}

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        for callback in plan.callbacks:
            self.check_callback(plan, callback.path)
        reason, hint = f"strategy={self.name} shards contiguous weights alone", "memory_format=auto, or strategy=ddp"
        yield plan.memory_format != "channels_last", "memory_format", reason, hint
        reason = "its loss scaler would look at each rank's shard alone, so ranks would not skip the same steps"
        yield plan.precision != "16-mixed", "precision", reason, "precision=bf16-mixed, or strategy=ddp"
        fits, key = plan.accelerator != "gpu" or plan.world.backend != "gloo", "process_group.backend"
        reason = f"strategy={self.name} sends the shards of GPU tensors by nccl"
        yield fits or self.sends_by_gloo, key, reason, f"{key}=nccl, or accelerator=cpu"

    def check_callback(self, plan: "Plan", path: str) -> None:
        package, _, name = path.rpartition(".")
        fits = package.startswith("lockstep.")
        fits = fits or (package.startswith("lightning.pytorch.callbacks") and name in READS_NO_WEIGHTS)
        reason = f"{name} may read or change weights, and each rank has a shard of {self.sharded_part(plan)}"
        require(fits or not self.shards_weights(plan), "strategy", self.name, reason, "strategy=ddp")

    def sharded_part(self, plan: "Plan") -> str:
        """Return what each rank has a part of, for messages."""
        return f"{plan.model.name}.net"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Explain torch's errors about what a module does with its net."""
        try:
            yield
        except Exception as error:
            explained, hint = self.explanations()
            for text in (text for text in explained if text in str(error)):
                raise config_error("strategy", self.name, explained[text], hint) from error
            raise

    def explanations(self) -> tuple[Mapping[str, str], str]:
        """Return `explained`, and what to write instead."""
        return self.explained, "strategy=ddp, or use self.net(…) alone"

    def prepare_optimizers(self, plan: "Plan", optimizers: "Sequence[Optimizer]") -> None:
        """Raise if an optimizer computes with more of a parameter than one number at a time."""
        kinds = {kind.__name__ for optimizer in optimizers for kind in type(optimizer).__mro__}
        for name in NEEDS_FULL_TENSORS.keys() & kinds:
            reason = f"{name} {NEEDS_FULL_TENSORS[name]}, and each rank has a shard"
            raise config_error("strategy", self.name, reason, "strategy=ddp")

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        if not self.shards_weights(plan):
            return super().lightning(plan)
        from lockstep.strategies.parallel.sharded_strategy import ShardedStrategy

        return ShardedStrategy(plan, self.parallel_devices(plan))


@dataclass(frozen=True)
class FSDP(Sharded):
    """`module`: shard the module's net, if that is all of it (`auto`), or any module in one piece (`shard`)."""

    name: Literal["fsdp"]
    module: Literal["auto", "shard"] = "auto"
    order: ClassVar[str] = "fsdp"
    explained: ClassVar[Mapping[str, str]] = {
        "got mixed torch.Tensor and DTensor": "a step uses weights of net outside its forward, which gathers them",
        "FSDP does not support deepcopy": "a hook copies net, of which each rank has a shard",
    }
    find_unused_parameters = True

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return DDP("ddp", share_device=False), plan.devices

    def gradient_sync(self, plan: "Plan") -> str:
        return "fsdp"

    def shards_weights(self, plan: "Plan") -> bool:
        return self.module == "shard" or (plan.model.can_shard_net and not plan.model.manual)

    def rules(self, plan: "Plan") -> Rules:
        reason = f"{plan.model.name} optimizes manually, within steps, where its weights are gathered"
        yield self.module != "shard" or not plan.model.manual, "strategy.module", reason, "strategy.module=auto"
        yield from super().rules(plan)

    def sharded_part(self, plan: "Plan") -> str:
        return plan.model.name if self.module == "shard" else super().sharded_part(plan)

    def explanations(self) -> tuple[Mapping[str, str], str]:
        if self.module == "shard":
            return EXPLAINED_OF_MODULE, "strategy.module=auto, or strategy=ddp"
        explained, hint = super().explanations()
        return explained, f"strategy.module=shard, {hint}"

    def note(self, plan: "Plan") -> str:
        if self.shards_weights(plan):
            return ""
        kind = "optimizes manually" if plan.model.manual else "has weights outside its net, or without dimensions"
        hint = "" if plan.model.manual else "; strategy.module=shard divides these, too"
        stored = "each rank has all weights and gradients, and a part of the optimizer state"
        return f"strategy=fsdp: {plan.model.name} {kind}, so {stored}{hint}"

    def lay_out(self, plan: "Plan", module: "nn.Module") -> None:
        mesh = mesh_of(plan, ranks=plan.world_size)
        if self.module == "auto":
            shard_net(module, mesh)
            return
        from lockstep.strategies.parallel.sharded_module import ShardedModule

        ShardedModule(module, mesh)

    def prepare_optimizers(self, plan: "Plan", optimizers: "Sequence[Optimizer]") -> None:
        """Divide the states of optimizers over ranks if weights are not sharded."""
        if self.shards_weights(plan):
            super().prepare_optimizers(plan, optimizers)
            from lockstep.strategies.parallel.tensor_layout import is_sharded, parameters_of

            step_one_by_one([each for each in optimizers if not all(map(is_sharded, parameters_of(each)))])
            return
        from lockstep.base.optimizers import needs_no_closure
        from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer

        for optimizer in filter(needs_no_closure, optimizers):  # others may use all parameters at once
            DividedOptimizer(optimizer, gathers=not plan.checkpoint.sharded)


def step_one_by_one(optimizers: "Sequence[Optimizer]") -> None:
    """Have optimizers step each parameter by itself: a list of tensors and of DTensors has no kernel."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group |= {key: False for key in ("foreach", "fused") if key in group}


def mesh_of(plan: "Plan", **sizes: int) -> "DeviceMesh":
    """Return a mesh of all ranks, with the sizes of its dimensions by name."""
    from torch.distributed.device_mesh import init_device_mesh

    device_type = "cuda" if plan.accelerator == "gpu" else "cpu"  # the default of a mesh is an accelerator
    return init_device_mesh(device_type, (*sizes.values(),), mesh_dim_names=(*sizes,))


def shard_net(module: "nn.Module", mesh: "DeviceMesh") -> None:
    """Shard the net of a module, in place. Its gradients are reduced after each batch, also while accumulating.

    The initial weights of all ranks are the same because the seed is. Gradients are summed and divided for every
    dtype: FSDP2 averages float32 by gloo's average, which is a sum in some versions of torch.
    """
    import torch
    from torch.distributed.fsdp import fully_shard

    from lockstep.base.private_api.torch import complete_dtensors

    net = net_of(module)
    assert net is not None
    complete_dtensors()  # hooks of a module may measure and change its weights
    net.to(memory_format=torch.contiguous_format)
    for part in (*_blocks(net), net):
        fully_shard(part, mesh=mesh).set_force_sum_reduction_for_comms(True)


def _blocks(net: "nn.Module") -> "Iterator[nn.Module]":
    """Yield the modules to be gathered one at a time: the children of a net, or the children of a container.

    A block that shares a parameter with another one (tied weights) is left to the root.
    """
    from torch import nn

    uses = Counter(parameter for _, parameter in net.named_parameters(remove_duplicate=False))
    for child in net.children():
        for block in child.children() if isinstance(child, nn.Sequential | nn.ModuleList) else (child,):
            counts = Counter(parameter for _, parameter in block.named_parameters(remove_duplicate=False))
            if counts and all(uses[parameter] == count for parameter, count in counts.items()):
                yield block
