"""A process a device, gradients averaged over ranks; torch's elastic agent starts all anew after a failure."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Distributed, Wrapped

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy as LightningStrategy

    from lockstep.plan import Plan


class Replicated(Distributed):
    """Each rank has the whole net, however ranks start."""

    find_unused_parameters: bool = False
    """Whether DDP looks in each step for parameters that get no gradient in it, and does not wait for theirs."""

    def gradient_sync(self, plan: "Plan") -> str:
        return plan.engine.gradient_sync

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        if plan.world.backend == "gloo" and plan.accelerator == "gpu" and plan.gradient_sync == "ring":
            why = "ranks talk by gloo here, which passes no GPU tensors from rank to rank"
            raise config_error("engine.gradient_sync", "ring", why, "engine.gradient_sync=bucket")

    def wrap(self, plan: "Plan", module: Any) -> Wrapped:
        """Wrap the training step, since that is where the loss comes from; a manual one calls no forward of DDP.

        DDP gives every rank the first weights of rank 0. By hand nobody does: they are the same by the same seed.
        """
        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP, TrainingStep
        from lockstep.parallel.reduce import average_gradients

        plain = super().wrap(plan, module)
        if plan.gradient_sync != "ddp":
            return Wrapped(plain.forward, partial(average_gradients, plan.gradient_sync, module))
        device_ids = self.devices(plan) if plan.accelerator == "gpu" else None
        ddp = FixedBucketDDP(TrainingStep(module), device_ids, **self._ddp_options(plan))
        return Wrapped(ddp, accumulating=ddp.no_sync, ddp=ddp)

    def _ddp_options(self, plan: "Plan") -> dict[str, bool]:
        """A module that steps several optimizers by itself gives each backward to some of its parameters."""
        unused = self.find_unused_parameters or plan.model.manual
        return {"gradient_as_bucket_view": True, "find_unused_parameters": unused}

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP

        options = self._ddp_options(plan)

        class FixedBucketDDPStrategy(DDPStrategy):
            """Wraps the module as the raw engine wraps its net."""

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
