"""DistributedDataParallel: one process per device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import Rules
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    import torch
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy as LightningStrategy

    from lockstep.plan.plan import Plan


class Replicated(Strategy):
    """The base of strategies with a rank for each device; each takes different samples of every batch.

    find_unused_parameters: whether DDP accepts parameters that get no gradient in some steps.
    static_graph: whether DDP may rely on every step using the same parameters, as activation checkpoints need.
    """

    find_unused_parameters: bool = False
    broadcast_buffers: bool | None = None
    static_graph: bool = False
    distributed: ClassVar[bool] = True
    batch_key: ClassVar[tuple[str, ...]] = ("ddp", "world_size")

    def gradient_sync(self, plan: "Plan") -> str:
        return plan.engine.gradient_sync

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        fits = plan.world.backend != "gloo" or plan.accelerator != "gpu" or plan.gradient_sync != "ring"
        reason = "gloo cannot send GPU tensors from rank to rank"
        yield fits, "engine.gradient_sync", reason, "engine.gradient_sync=bucket"

    def parallel_devices(self, plan: "Plan") -> "list[torch.device] | None":
        """Return the device of each rank of a machine, for Lightning; None lets Lightning choose."""
        return self.devices(plan) * plan.devices if self.share_device else None

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from lockstep.strategies.parallel.fixed_bucket_ddp import FixedBucketDDP

        finds_unused = self.find_unused_parameters or plan.model.manual  # every pass of one optimizer leaves some
        prepare_optimizers, static_graph = self.prepare_optimizers, self.static_graph

        class FixedBucketDDPStrategy(DDPStrategy):
            """DDPStrategy whose DistributedDataParallel sums gradients in the same order in each process."""

            def configure_ddp(self) -> None:
                assert self.model is not None
                devices = self.determine_ddp_device_ids()
                self.model = FixedBucketDDP(self.model, devices, finds_unused, static_graph)

            def setup_optimizers(self, trainer: "Trainer") -> None:
                super().setup_optimizers(trainer)
                prepare_optimizers(plan, self.optimizers)

        return FixedBucketDDPStrategy(
            parallel_devices=self.parallel_devices(plan),
            cluster_environment=TorchElasticEnvironment(),
        )


@dataclass(frozen=True)
class DDP(Replicated):
    """DDP; for `ddp_spawn`, torch.multiprocessing starts the ranks as well."""

    name: Literal["ddp", "ddp_spawn"]
    share_device: bool
    find_unused_parameters: bool = False
    broadcast_buffers: bool | None = None
    static_graph: bool = False
