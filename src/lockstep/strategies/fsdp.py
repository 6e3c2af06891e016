"""FSDP2: one process per device, each stores a shard of every parameter, its gradient and its optimizer state.

`fully_shard` is applied to each block and at the root: the weights of a block are gathered from all ranks while it
computes, and its gradient is reduced to shards. Checkpoints, digests and logs have full tensors.

Of a LightningModule the attribute `net` is sharded, if it holds all parameters and optimization is automatic. Any other
module may read and change any weight anywhere, so each rank needs all of them in each step: DDP averages its gradients,
and the states of its optimizers are divided over ranks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.base.config_error import config_error, require
from lockstep.base.constraints import Rules
from lockstep.strategies.ddp import DDP, Replicated
from lockstep.strategies.strategy import Strategy, net_of

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import nn
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

EXPLAINED = {
    "got mixed torch.Tensor and DTensor": "a step uses weights of net outside its forward, which alone gathers them",
    "FSDP does not support deepcopy": "a hook copies net, of which each rank has a shard",
}
"""Parts of torch's errors about modules that use more of their net than its forward, and what they say."""


@dataclass(frozen=True)
class FSDP(Replicated):
    name: Literal["fsdp"]
    sharded: ClassVar[bool | str] = True
    order: ClassVar[str] = "fsdp"
    find_unused_parameters = True

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return DDP("ddp", share_device=False), plan.devices

    def gradient_sync(self, plan: "Plan") -> str:
        return "fsdp"

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        for callback in plan.callbacks:
            self.check_callback(plan, callback.path)
        reason, hint = "strategy=fsdp shards contiguous weights alone", "memory_format=auto, or strategy=ddp"
        yield plan.memory_format != "channels_last", "memory_format", reason, hint
        reason = "its loss scaler would look at each rank's shard alone, so ranks would not skip the same steps"
        yield plan.precision != "16-mixed", "precision", reason, "precision=bf16-mixed, or strategy=ddp"
        fits, key = plan.accelerator != "gpu" or plan.world.backend != "gloo", "process_group.backend"
        yield fits, key, "strategy=fsdp sends the shards of GPU tensors by nccl", f"{key}=nccl, or accelerator=cpu"

    def shards_weights(self, plan: "Plan") -> bool:
        return plan.model.can_shard_net and not plan.model.manual

    def check_callback(self, plan: "Plan", path: str) -> None:
        package, _, name = path.rpartition(".")
        fits = package.startswith("lockstep.")
        fits = fits or (package.startswith("lightning.pytorch.callbacks") and name in READS_NO_WEIGHTS)
        reason = f"{name} may read or change weights, and each rank has a shard of {plan.model.name}.net"
        require(fits or not self.shards_weights(plan), "strategy", self.name, reason, "strategy=ddp")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Explain torch's errors about what a module does with its net."""
        try:
            yield
        except Exception as error:
            for text in (text for text in EXPLAINED if text in str(error)):
                hint = "strategy=ddp, or use self.net(…) alone"
                raise config_error("strategy", self.name, EXPLAINED[text], hint) from error
            raise

    def prepare_optimizers(self, optimizers: "Sequence[Optimizer]") -> None:
        """Divide the states of optimizers over ranks, whose weights are not sharded."""
        from lockstep.base.optimizers import needs_no_closure
        from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer

        for optimizer in filter(needs_no_closure, optimizers):  # others may use all parameters at once
            DividedOptimizer(optimizer)

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        """Return a DDPStrategy that shards a net instead of wrapping it in DistributedDataParallel.

        Lightning's ModelParallelStrategy supports neither a checkpoint plugin nor 64-true.
        """
        if not self.shards_weights(plan):
            return super().lightning(plan)
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy
        from lightning.pytorch.trainer.states import TrainerFn

        from lockstep.strategies.parallel import tensor_layout

        class ShardedStrategy(DDPStrategy):
            lightning_restore_optimizer = False  # the session loads shards

            def setup(self, trainer: "Trainer") -> None:
                """Set up as Lightning's strategies do, and shard. The weights of a checkpoint are loaded already."""
                assert self.accelerator is not None
                assert self.model is not None
                self.accelerator.setup(trainer)
                self.model = self.precision_plugin.convert_module(self.model)
                self.model_to_device()
                shard_net(self.lightning_module, self.root_device.type)
                if trainer.state.fn == TrainerFn.FITTING:
                    self.setup_optimizers(trainer)
                    check_optimizers(self.optimizers)
                self.setup_precision_plugin()

            def teardown(self) -> None:
                """Move the module back from the CPU, where a mesh of GPUs cannot gather it."""
                super().teardown()
                assert self.lightning_module is not None
                self.lightning_module.to(self.root_device)

            def lightning_module_state_dict(self) -> dict[str, Any]:
                assert self.lightning_module is not None
                return tensor_layout.full_state_dict(self.lightning_module)

            def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
                return tensor_layout.full_optimizer_state(optimizer)

        return ShardedStrategy(cluster_environment=TorchElasticEnvironment())


def check_optimizers(optimizers: "Sequence[Optimizer]") -> None:
    """Raise if an optimizer computes with more of a parameter than one number at a time."""
    kinds = {kind.__name__ for optimizer in optimizers for kind in type(optimizer).__mro__}
    for name in NEEDS_FULL_TENSORS.keys() & kinds:
        reason = f"{name} {NEEDS_FULL_TENSORS[name]}, and each rank has a shard"
        raise config_error("strategy", "fsdp", reason, "strategy=ddp")


def shard_net(module: Any, device_type: str) -> None:
    """Shard the net of a module in place, once. Its gradients are reduced after each batch, also while accumulating.

    The initial weights of all ranks are the same because the seed is. Gradients are summed and divided for every
    dtype: FSDP2 averages float32 by gloo's average, which is a sum in some versions of torch.
    """
    import torch
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    from lockstep.base.private_api.torch import read_full_scalars

    net = net_of(module)
    assert net is not None
    if isinstance(net, FSDPModule):
        return
    read_full_scalars()  # hooks of a module may measure its weights and gradients
    net.to(memory_format=torch.contiguous_format)
    mesh = init_device_mesh(device_type, (get_world_size(),))  # its default is an accelerator
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
