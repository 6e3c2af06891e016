"""DistributedDataParallel: one process per device; all ranks can be restarted after a failure."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.constraints import NonNegativeInt, Rules
from lockstep.strategies.strategy import Strategy, Wrapped

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy as LightningStrategy

    from lockstep.plan import Plan


class Replicated(Strategy):
    """The base of strategies with a rank for each device; each takes different samples of every batch.

    find_unused_parameters: whether DDP accepts parameters that get no gradient in some steps.
    """

    find_unused_parameters: bool = False
    distributed: ClassVar[bool] = True
    batch_key: ClassVar[tuple[str, ...]] = ("ddp", "world_size")

    def gradient_sync(self, plan: "Plan") -> str:
        return plan.engine.gradient_sync

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        fits = plan.world.backend != "gloo" or plan.accelerator != "gpu" or plan.gradient_sync != "ring"
        reason = "gloo cannot send GPU tensors from rank to rank"
        yield fits, "engine.gradient_sync", reason, "engine.gradient_sync=bucket"

    def wrap(self, plan: "Plan", module: Any) -> Wrapped:
        """Wrap the training step in DDP, or average the gradients without DDP if `engine.gradient_sync` says so."""
        wrapped = super().wrap(plan, module)
        if plan.engine.gradient_sync != "ddp":
            from lockstep.parallel.reduce import average_gradients

            method, unused = plan.gradient_sync, self._finds_unused(plan)
            return Wrapped(wrapped.forward, partial(average_gradients, method, module, unused))
        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP, TrainingStep

        device_ids = self.devices(plan) if plan.accelerator == "gpu" else None
        ddp = FixedBucketDDP(TrainingStep(module), device_ids, self._finds_unused(plan))
        return Wrapped(ddp, accumulating=ddp.no_sync, ddp=ddp)

    def _finds_unused(self, plan: "Plan") -> bool:
        """Whether DDP searches for parameters without a gradient; with several optimizers every pass leaves some."""
        return self.find_unused_parameters or plan.model.manual

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP

        finds_unused = self._finds_unused(plan)

        class FixedBucketDDPStrategy(DDPStrategy):
            """Wraps the module in the same class as the raw engine."""

            def configure_ddp(self) -> None:
                assert self.model is not None
                self.model = FixedBucketDDP(self.model, self.determine_ddp_device_ids(), finds_unused)

        return FixedBucketDDPStrategy(
            parallel_devices=self.devices(plan) * plan.devices if self.share_device else None,
            cluster_environment=TorchElasticEnvironment(),
        )


@dataclass(frozen=True)
class DDP(Replicated):
    name: Literal["ddp"]
    share_device: bool
    max_restarts: NonNegativeInt
    find_unused_parameters: bool = False
    start: ClassVar[Literal["elastic", "spawn"]] = "elastic"


@dataclass(frozen=True)
class DDPSpawn(Replicated):
    """The same as ddp, but torch.multiprocessing starts the ranks."""

    name: Literal["ddp_spawn"]
    share_device: bool
    find_unused_parameters: bool = False
