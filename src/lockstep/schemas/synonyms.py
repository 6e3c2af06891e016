"""Names that users of other tools type, of Lightning's Trainer above all: what the key is here, or that none is."""

from dataclasses import fields

from lockstep.config_error import ConfigError, as_typed, config_error, typed_command
from lockstep.schemas.trainer import Trainer

SAME: dict[str, str] = {
    "lr": "optimizer.lr",
    "learning_rate": "optimizer.lr",
    "optimizer.learning_rate": "optimizer.lr",
    "wd": "optimizer.weight_decay",
    "epochs": "max_epochs",
    "num_epochs": "max_epochs",
    "n_epochs": "max_epochs",
    "gpus": "devices",
    "num_gpus": "devices",
    "num_processes": "devices",
    "nproc_per_node": "devices",
    "nnodes": "num_nodes",
    "nodes": "num_nodes",
    "global_batch_size": "batch_size",
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "grad_clip": "gradient_clip_val",
    "clip_grad_norm": "gradient_clip_val",
    "resume_from_checkpoint": "ckpt_path",
    "ckpt": "ckpt_path",
    "checkpoint_path": "ckpt_path",
    "random_seed": "seed",
    "default_root_dir": "hydra.run.dir",
    "output_dir": "hydra.run.dir",
    "sync_bn": "sync_batchnorm",
    "loggers": "logger",
    "net": "model",
    "dataset": "data",
    "backend": "process_group.backend",
    **{field.name: f"trainer.{field.name}" for field in fields(Trainer)},
}
"""Another name of the same thing."""

OF_THE_PLAN = (
    *("accelerator", "strategy", "devices", "num_nodes", "precision", "logger", "callbacks", "max_epochs"),
    *("log_every_n_steps", "accumulate_grad_batches", "gradient_clip_val", "sync_batchnorm"),
)
"""Arguments of Lightning's Trainer that are keys of their own here."""

LIKE: dict[str, tuple[str, str]] = {
    "min_steps": ("training runs for max_epochs", "max_epochs=N"),
    "min_epochs": ("training runs for max_epochs", "max_epochs=N"),
    "limit_predict_batches": ("nothing is predicted batch by batch", "{command} train=false ckpt_path=last …"),
    "num_workers": ("data lies in memory, no workers load it", "threads=N for the CPU threads of a rank"),
    "pin_memory": ("data lies in memory, and on the GPU where it fits", "nothing in its place"),
    "enable_checkpointing": ("a checkpoint is saved after each epoch", "trainer.barebones=true for none"),
    "inference_mode": ("evaluation needs no gradients", "nothing in its place"),
    "use_distributed_sampler": ("batches are shared out by the contract's order", "nothing in its place"),
    "reload_dataloaders_every_n_epochs": ("loaders are made once", "a Dataset or sampler that knows the epoch"),
    "enable_autolog_hparams": ("loggers get the plan's hyperparameters", "logger=none for no loggers"),
    "model_registry": ("checkpoints lie in the run's folder", "a logger of your own that uploads them"),
    "plugins": ("a run has its own plugins alone", "precision=bf16-mixed, say, or process_group.backend=gloo"),
    "profiler": ("a run is not profiled", "python -m bench quick=true, in a checkout, for what costs how much"),
}
"""What has no key of its own: why, and what to write instead."""


def synonym(key: str, value: object) -> ConfigError | None:
    """The refusal of a name that is usual elsewhere; None where it is not one. `trainer.max_epochs` is `max_epochs`."""
    name = key.removeprefix("trainer.")
    if name in LIKE:
        reason, hint = LIKE[name]
        return config_error(key, value, f"there is no such key: {reason}", hint.format(command=typed_command()))
    own = name if name in OF_THE_PLAN and name != key else SAME.get(name)
    if own is not None:
        return config_error(key, value, f"there is no such key, it is {own} here", f"{own}={as_typed(value)}")
    return None
