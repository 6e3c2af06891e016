"""The raw engine: the same training in plain torch.distributed, from the words of docs/agreement.md.

It shares no line that decides a number with the other engine, so that `engine=both` proves something. To be read from
top to bottom: `run` (a run on one rank) and `step` (a batch on one rank), then what these call: `data` (this rank's
share of each batch), `module` (what a LightningModule sees), `log` (`self.log`), `record` (what the run leaves).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.plan.world import World

CALLED = (  # the hooks of a LightningModule, in their order; one that overrides another is refused
    *("setup", "configure_model", "configure_optimizers", "on_fit_start", "on_validation_model_eval"),
    *("on_validation_start", "on_validation_epoch_start", "on_validation_batch_start", "validation_step"),
    *("on_validation_batch_end", "on_validation_epoch_end", "on_validation_end", "on_validation_model_train"),
    *(
        "on_train_start",
        "on_train_epoch_start",
        "on_before_batch_transfer",
        "transfer_batch_to_device",
        "on_after_batch_transfer",
    ),
    *("on_train_batch_start", "training_step", "on_before_zero_grad", "optimizer_zero_grad", "on_before_backward"),
    *("backward", "on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping", "optimizer_step"),
    *("lr_scheduler_step", "on_train_batch_end", "on_validation_model_zero_grad", "on_train_epoch_end"),
    *("on_train_end", "on_fit_end", "teardown", "on_save_checkpoint", "on_test_model_eval", "on_test_start"),
    *("on_test_epoch_start", "on_test_batch_start", "test_step", "on_test_batch_end", "on_test_epoch_end"),
    *("on_test_end", "on_test_model_train", "on_load_checkpoint"),
)


@dataclass(frozen=True)
class Job:
    """What a rank knows of a run.

    config: the composed configuration, as YAML. plan: what `lockstep.load` reads in the checkpoint, as JSON.
    metadata: what identifies the run among others, for its record and metrics.json.
    """

    world: World
    config: str
    metadata: Mapping[str, Any]
    plan: str
