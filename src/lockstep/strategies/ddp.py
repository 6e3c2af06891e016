"""DistributedDataParallel: one process per device; all ranks can be restarted after a failure."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Distributed, Wrapped

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy as LightningStrategy

    from lockstep.plan import Plan


class Replicated(Distributed):
    """The base of strategies with a replica of the net on each rank.

    find_unused_parameters: whether DDP accepts parameters that get no gradient in some steps.
    """

    find_unused_parameters: bool = False

    def gradient_sync(self, plan: "Plan") -> str:
        return plan.engine.gradient_sync

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        if plan.world.backend == "gloo" and plan.accelerator == "gpu" and plan.gradient_sync == "ring":
            reason = "gloo cannot send GPU tensors from rank to rank"
            raise config_error("engine.gradient_sync", "ring", reason, "engine.gradient_sync=bucket")

    def wrap(self, plan: "Plan", module: Any) -> Wrapped:
        """Wrap the training step in DDP, or average the gradients without DDP if `engine.gradient_sync` says so.

        DDP broadcasts the initial weights of rank 0. Without DDP they are the same because the seed is.
        """
        plain = super().wrap(plan, module)
        if plan.gradient_sync != "ddp":
            from lockstep.parallel.reduce import average_gradients

            return Wrapped(plain.forward, partial(average_gradients, plan.gradient_sync, module))
        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP, TrainingStep

        device_ids = self.devices(plan) if plan.accelerator == "gpu" else None
        ddp = FixedBucketDDP(TrainingStep(module), device_ids, **self._ddp_options(plan))
        return Wrapped(ddp, accumulating=ddp.no_sync, ddp=ddp)

    def _ddp_options(self, plan: "Plan") -> dict[str, bool]:
        """Return the options of DDP. With several optimizers a backward pass reaches only some of the parameters."""
        unused = self.find_unused_parameters or plan.model.manual
        return {"gradient_as_bucket_view": True, "find_unused_parameters": unused}

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP

        options = self._ddp_options(plan)

        class FixedBucketDDPStrategy(DDPStrategy):
            """Wraps the module in the same class as the raw engine."""

            def configure_ddp(self) -> None:
                assert self.model is not None
                device_ids = self.determine_ddp_device_ids()
                self.model = FixedBucketDDP(self.model, device_ids, **options)

        return FixedBucketDDPStrategy(
            parallel_devices=self.devices(plan) * plan.devices if self.share_device else None,
            cluster_environment=TorchElasticEnvironment(),
        )


@dataclass(frozen=True)
class DDP(Replicated):
    name: Literal["ddp"]
    share_device: bool
    max_restarts: int
    find_unused_parameters: bool = False
    start: ClassVar[Literal["elastic", "spawn"]] = "elastic"


@dataclass(frozen=True)
class DDPSpawn(Replicated):
    """The same as ddp, but torch.multiprocessing starts the ranks."""

    name: Literal["ddp_spawn"]
    share_device: bool
    find_unused_parameters: bool = False
