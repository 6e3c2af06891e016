"""Lightning's side of the strategies that lay out the parameters of a module over ranks by themselves.

Lightning's ModelParallelStrategy supports neither a checkpoint plugin nor 64-true.
"""

from typing import TYPE_CHECKING, Any

from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn

from lockstep.strategies.parallel.tensor_layout import (
    clip_gradients,
    full_optimizer_state,
    full_state_dict,
    is_sharded,
    owners_of,
    parameters_of,
)
from lockstep.strategies.parallel.used_weights import UsedWeights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lockstep.plan.plan import Plan


class ShardedStrategy(DDPStrategy):
    """A DDPStrategy that calls `lay_out` of the plan's strategy in place of DistributedDataParallel."""

    lightning_restore_optimizer = False  # the session loads shards

    def __init__(self, plan: "Plan", devices: "list[torch.device] | None") -> None:
        super().__init__(parallel_devices=devices, cluster_environment=TorchElasticEnvironment())
        self.plan = plan

    def setup(self, trainer: Trainer) -> None:
        """Set up as Lightning's strategies do, and shard. The weights of a checkpoint are loaded already."""
        assert self.accelerator is not None
        assert self.model is not None
        assert self.lightning_module is not None
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.model)
        if not any(is_sharded(each) or owners_of(each) for each in self.model.parameters()):  # it is not laid out yet
            self.model_to_device()
            self.plan.strategy.lay_out(self.plan, self.lightning_module)
            self.used = UsedWeights(self.plan, self.lightning_module)
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
            self.plan.strategy.prepare_optimizers(self.plan, self.optimizers)
        self.setup_precision_plugin()
        clip: Any = lambda optimizer, limit: clip_gradients(parameters_of(optimizer), limit)  # noqa: E731
        vars(self.precision_plugin)["clip_grad_by_norm"] = clip

    def post_backward(self, closure_loss: "Tensor") -> None:
        super().post_backward(closure_loss)
        self.used.compare()

    def teardown(self) -> None:
        """Leave the module where it is: on the CPU a mesh of GPUs could not gather it, and parts are elsewhere."""
        module: Any = self.lightning_module
        vars(module)["cpu"] = lambda: module
        super().teardown()
        del vars(module)["cpu"]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return full_state_dict(self.lightning_module)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return full_optimizer_state(optimizer)
