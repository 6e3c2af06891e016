"""What Lightning's own strategies lack: buckets that stay as they are, and a net's stages on devices of one process."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from lockstep.lit.module import Supervised
from lockstep.parallel import devices_of, move_to_devices
from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP
from lockstep.plan import Plan


class FixedBucketDDPStrategy(DDPStrategy):
    """With the wrapping that the raw engine has, too."""

    def _setup_model(self, model: nn.Module) -> FixedBucketDDP:
        return FixedBucketDDP(model, self.determine_ddp_device_ids(), **self._ddp_kwargs)


class PipelineStagesStrategy(SingleDeviceStrategy):
    """Batches and losses are on the first device, each stage is on its own.

    Lightning's single-device strategy would gather the whole net on the first.
    """

    def __init__(self, plan: Plan) -> None:
        first, *_ = devices_of(plan)
        super().__init__(first)
        self.plan = plan

    def model_to_device(self) -> None:
        module = self.lightning_module
        assert isinstance(module, Supervised)
        move_to_devices(self.plan, module.net)
        for child in module.children():
            if child is not module.net:  # what counts, counts where outputs and targets are
                child.to(self.root_device)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Each parameter's state goes to where the parameter is; Lightning would bring all of it to one device."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            optimizer.load_state_dict(state)
