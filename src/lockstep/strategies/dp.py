"""DataParallel: one process, a replica of the net on every device; and the base of strategies that compute a net."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.base.constraints import Rules
from lockstep.strategies.single import Single
from lockstep.strategies.strategy import Strategy, net_of

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy as LightningStrategy
    from torch import nn

    from lockstep.plan.plan import Plan

Forward = Callable[..., Any]  # called like a net, it computes its outputs


class NetStrategy(Strategy):
    """The base of strategies that compute a module's `net` in another way, in one process.

    What the module itself computes beside its net, the loss and metrics, it computes once, of the full batch.
    """

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        reason = f"it computes the attribute `net` of a module, and {plan.model.name} sets none in its __init__"
        yield plan.model.has_net, "strategy", reason, "strategy=ddp, or self.net = … in the module"

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return Single("single", in_process=False), 1

    @abstractmethod
    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        """Return the function, no module with parameters, that computes the outputs of a net, and move its layers."""

    def lightning(self, plan: "Plan") -> "LightningStrategy":
        from lightning.pytorch.strategies import SingleDeviceStrategy

        from lockstep.strategies.parallel.net_proxy import replace_forward

        forward = self.forward

        class NetStrategyOfLightning(SingleDeviceStrategy):
            """SingleDeviceStrategy with the net on several devices; batches and losses are on the first one."""

            lightning_restore_optimizer = False  # it would move the state of all stages to the first device

            def model_to_device(self) -> None:
                super().model_to_device()
                assert self.lightning_module is not None
                net = net_of(self.lightning_module)
                assert net is not None
                replace_forward(self.lightning_module, net, forward(plan, net))

        return NetStrategyOfLightning(self.devices(plan)[0])


@dataclass(frozen=True)
class DP(NetStrategy):
    name: Literal["dp"]
    in_process: bool | None = None
    replicates: ClassVar[bool] = True
    batch_key: ClassVar[tuple[str, ...]] = ("dp", "devices")
    refuses_compiling: ClassVar[str] = "computes with new copies of the net in each batch"

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        reason = "each replica of strategy=dp normalises its own slice of the batch"
        yield not plan.sync_batchnorm, "sync_batchnorm", reason, "sync_batchnorm=false, or strategy=ddp"

    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        from torch import nn

        from lockstep.base.precision import MIXED
        from lockstep.strategies.parallel.cpu_data_parallel import AutocastWrapper, CpuDataParallel

        if plan.accelerator == "cpu":
            return CpuDataParallel(net, plan.devices)
        autocasting = AutocastWrapper(net, "cuda", MIXED.get(plan.precision))
        return nn.DataParallel(autocasting, device_ids=list(range(plan.devices))).__call__
