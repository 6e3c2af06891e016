"""A process a device, each holding a shard of every parameter, of its gradient and of its optimizer state.

FSDP2's `fully_shard`, per block and at the root: a block's whole weights are there while it computes, gathered from all
ranks, and its gradient goes back in shards. What is saved, digested or printed is whole, gathered on every rank.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Distributed, Wrapped, plain_net

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from lockstep.parallel.sharded_module import ShardedModule
    from lockstep.plan import Plan

BY_WHOLE_WEIGHTS = {
    "LBFGS": "searches along one vector of all weights",
    "Adafactor": "computes with rows and columns of whole weights",
    "Muon": "orthogonalizes whole matrices",
    "Shampoo": "computes with whole matrices",
    "SOAP": "computes with whole matrices",
}
"""What optimizers do, by the names of their classes, that is no function of each number and its gradient alone."""


@dataclass(frozen=True)
class FSDP(Distributed):
    name: Literal["fsdp"]
    max_restarts: int
    start: ClassVar[Literal["elastic", "spawn"]] = "elastic"
    sharded: ClassVar[bool] = True

    def gradient_sync(self, plan: "Plan") -> str:
        return "fsdp"

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        if plan.engine.gradient_sync != "ddp":
            key, why = "engine.gradient_sync", "strategy=fsdp sums gradients in shards, and nobody by hand"
            raise config_error(key, plan.engine.gradient_sync, why, f"{key}=ddp, or strategy=ddp")
        if plan.memory_format == "channels_last":
            why = "strategy=fsdp shards contiguous weights alone"
            raise config_error("memory_format", "channels_last", why, "memory_format=auto, or strategy=ddp")
        if plan.precision == "16-mixed":
            why = "its loss scaler would look at each rank's shard alone, so ranks would not skip the same steps"
            raise config_error("precision", "16-mixed", why, "precision=bf16-mixed, or strategy=ddp")
        if plan.accelerator == "gpu" and plan.world.backend == "gloo":
            why = "strategy=fsdp passes the shards of GPU tensors by nccl"
            raise config_error("process_group.backend", "gloo", why, "process_group.backend=nccl, or accelerator=cpu")

    def check_optimizer(self, kinds: Collection[str]) -> None:
        for name in BY_WHOLE_WEIGHTS.keys() & {*kinds}:
            why = f"{name} {BY_WHOLE_WEIGHTS[name]}, and each rank has a shard"
            raise config_error("strategy", self.name, why, "strategy=ddp")

    # how it trains

    def wrap(self, plan: "Plan", module: Any) -> Wrapped:
        """Shard the blocks of a plain net; of a LightningModule all weights at once: nobody knows which of its layers
        computes when. Gradients are summed in shards after each batch, also where a step takes several.

        Raises:
            ConfigError: the module would go on to compute with some of its first weights.
        """
        wrapped = super().wrap(plan, module)
        if (net := plain_net(module)) is not module:
            self._shard(plan, net)
            return wrapped
        from lockstep.parallel.sharded_module import ShardedModule

        sharded = self.sharded_module(module) or ShardedModule(module, self._mesh(plan))
        if name := sharded.kept_elsewhere:
            reason = f"the module keeps weights in {name} too, where they would never change"
            raise config_error("strategy", "fsdp", reason, "self.parameters() where they are used, or strategy=ddp")
        return wrapped

    def _shard(self, plan: "Plan", net: "nn.Module") -> None:
        """In place, once. Nobody sends the first weights: they are the same by the same seed.

        Gradients are summed and divided, whatever the numbers: the average that float32 would take is gloo's own,
        which was a sum in some versions of torch.
        """
        import torch
        from torch.distributed.fsdp import FSDPModule, fully_shard

        if isinstance(net, FSDPModule):
            return
        net.to(memory_format=torch.contiguous_format)
        mesh = self._mesh(plan)
        for module in (*_blocks(net), net):
            fully_shard(module, mesh=mesh)
            assert isinstance(module, FSDPModule)
            module.set_force_sum_reduction_for_comms(True)

    def _mesh(self, plan: "Plan") -> "DeviceMesh":
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.devices(plan)[0].type, (plan.world_size,))  # its default is an accelerator

    def sharded_module(self, module: Any) -> "ShardedModule | None":
        from lockstep.parallel.sharded_module import SHARDED

        return SHARDED.get(module)

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        """Lightning's own for this, ModelParallelStrategy, takes neither a plugin for checkpoints nor 64-true.

        What it needs of DDPStrategy is all but DistributedDataParallel.
        """
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy
        from lightning.pytorch.trainer.states import TrainerFn

        own = self

        class ShardedStrategy(DDPStrategy):
            lightning_restore_optimizer = False  # the session loads shards

            def setup(self, trainer: "Trainer") -> None:
                """What Lightning's strategies do here, with shards. The weights of a checkpoint are there already."""
                assert self.accelerator is not None
                assert self.model is not None
                self.accelerator.setup(trainer)
                self.model = self.precision_plugin.convert_module(self.model)
                self.model_to_device()
                own.wrap(plan, self.model)
                if trainer.state.fn == TrainerFn.FITTING:
                    self.setup_optimizers(trainer)
                self.setup_precision_plugin()

            def teardown(self) -> None:
                """Lightning moves the module to the CPU, where a mesh of GPUs gathers nothing: the end is not yet."""
                super().teardown()
                assert self.lightning_module is not None
                own.move_to_devices(plan, self.lightning_module)

            def lightning_module_state_dict(self) -> dict[str, Any]:
                assert self.lightning_module is not None
                return own.state_dict(self.lightning_module)

            def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
                return own.optimizer_state(optimizer)

        return ShardedStrategy(cluster_environment=TorchElasticEnvironment())

    # shards and whole tensors

    def held(self, tensor: "Tensor") -> "Tensor":
        from torch.distributed.tensor import DTensor

        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def whole(self, tensor: "Tensor") -> "Tensor":
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor

    def part(self, whole: "Tensor", like: "Tensor") -> "Tensor":
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole.to(like.device)
        return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)

    def norms(self, gradients: "Sequence[Tensor]") -> "Sequence[Tensor]":
        """Of the whole gradients: the squares of the shards' norms, summed over ranks in one message.

        What is no shard each rank has alike.
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor

        from lockstep.private_api.torch import norms

        if not gradients:
            return ()
        squares = torch.stack([*norms([self.held(own) for own in gradients])]).double().square()
        copies = [1 if isinstance(own, DTensor) else dist.get_world_size() for own in gradients]
        squares /= torch.tensor(copies, device=squares.device)
        dist.all_reduce(squares)
        return squares.sqrt().unbind()

    def state_dict(self, net: "nn.Module") -> "dict[str, Tensor]":
        return {name: self.whole(own) for name, own in net.state_dict().items()}

    def load_state_dict(self, net: "nn.Module", state: "Mapping[str, Tensor]", strict: bool = True) -> None:
        from lockstep.structures import tensors_of  # with torch

        own = tensors_of(net.state_dict())
        parts = {name: self.part(value, own[name]) if name in own else value for name, value in state.items()}
        net.load_state_dict(parts, strict=strict)

    def optimizer_state(self, optimizer: "Optimizer") -> dict[str, Any]:
        state = optimizer.state_dict()
        return {**state, "state": {index: self._whole_entry(entry) for index, entry in state["state"].items()}}

    def _whole_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        from torch import Tensor

        return {name: self.whole(own) if isinstance(own, Tensor) else own for name, own in entry.items()}

    def load_optimizer_state(self, optimizer: "Optimizer", state: Mapping[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        entries = {index: self._own_entry(entry, parameters[index]) for index, entry in state["state"].items()}
        optimizer.load_state_dict({**state, "state": entries})

    def _own_entry(self, entry: Mapping[str, Any], parameter: "Tensor") -> dict[str, Any]:
        """A number of steps is nobody's shard."""
        from torch import Tensor

        alike = {name: isinstance(own, Tensor) and own.shape == parameter.shape for name, own in entry.items()}
        return {name: self.part(own, parameter) if alike[name] else own for name, own in entry.items()}

    # what it may be compared with

    @classmethod
    def summation(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        return "fsdp", heading["world_size"]


def _blocks(net: "nn.Module") -> "Iterator[nn.Module]":
    """The parts of a net that are there as a whole one after the other: its children, or those of a container."""
    from torch import nn

    uses = Counter(own for module in net.modules() for own in module.parameters(recurse=False))
    for child in net.children():
        parts = child.children() if isinstance(child, nn.Sequential | nn.ModuleList) else (child,)
        for part in parts:
            within = Counter(own for module in part.modules() for own in module.parameters(recurse=False))
            if within and all(uses[own] == count for own, count in within.items()):  # else one is tied to another's
                yield part
