"""The raw engine: the same training in plain torch.distributed, from the words of docs/agreement.md.

It shares no line that decides a weight with the other engine, so that `engine=both` proves something; torchmetrics
objects are computed from the states of all ranks by the same function.

Of Lightning it has what a module itself calls or inherits: its hooks, `backward`, `optimizer_step`, which calls
`optimizer.step`, and a `trainer` to read from. To be read in this order: `run` (a run on one rank), `step` (a batch on
one rank), `data` (this rank's share of each batch) and `average` (gradients over ranks), then what these call:
`trainer` (what a rank holds, and its module sees), `random_state` (seeds), `log` (what the module logs), `record`
(what a run leaves). `manual` is the step of a module with manual optimization, `batchnorm` that over all ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from lockstep.plan.world import World


@dataclass(frozen=True)
class Job:
    """The input of a rank.

    config: the composed configuration, as YAML. plan: what `lockstep.load` reads in the checkpoint.
    metadata: what identifies the run among others, for its record and metrics.json.
    """

    world: World
    config: str
    metadata: Mapping[str, Any]
    plan: Mapping[str, Any]


def configuration(text: str, world: int) -> Any:
    """Return the configuration, with what some keys stand for: batch_size_per_device, scale_lr, fast_dev_run, …"""
    Plugins.instance()  # its packages may register resolvers
    config: Any = OmegaConf.create(text)
    trainer, few = config.trainer, int(config.trainer.fast_dev_run)
    if few:
        config.max_epochs, trainer.limit_test_batches = 1, few
        trainer.val_check_interval, trainer.check_val_every_n_epoch = 1.0, 1
    if few or trainer.overfit_batches:
        trainer.limit_train_batches = trainer.limit_val_batches = few or trainer.overfit_batches
    if config.batch_size_per_device:
        config.batch_size = config.batch_size_per_device * world
    if config.scale_lr:
        config.optimizer.lr = config.optimizer.lr * world
    return config
