"""Keys of other tools, above all of Lightning's Trainer, and what to write instead."""

from lockstep.config_error import ConfigError, as_typed, config_error, typed_command

TRAINER = (
    *("limit_train_batches", "limit_val_batches", "limit_test_batches", "overfit_batches", "fast_dev_run"),
    *("max_steps", "max_time", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"),
    *("gradient_clip_algorithm", "deterministic", "benchmark", "detect_anomaly", "enable_progress_bar"),
    *("enable_model_summary", "barebones"),
)
"""Arguments of Lightning's Trainer that are keys of `trainer`."""

BY_KEY = {
    "optimizer.lr": "lr learning_rate optimizer.learning_rate",
    "optimizer.weight_decay": "wd",
    "max_epochs": "epochs num_epochs n_epochs",
    "devices": "gpus num_gpus num_processes nproc_per_node",
    "num_nodes": "nnodes nodes",
    "batch_size": "global_batch_size",
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "gradient_clip_val": "grad_clip clip_grad_norm",
    "ckpt_path": "resume_from_checkpoint ckpt checkpoint_path",
    "seed": "random_seed",
    "hydra.run.dir": "default_root_dir output_dir",
    "sync_batchnorm": "sync_bn",
    "logger": "loggers",
    "model": "net",
    "data": "dataset",
    "process_group.backend": "backend",
}
SYNONYMS = {name: key for key, names in BY_KEY.items() for name in names.split()}
SYNONYMS |= {name: f"trainer.{name}" for name in TRAINER}
"""The key for each synonym."""

TOP_LEVEL = (
    *("accelerator", "strategy", "devices", "num_nodes", "precision", "logger", "callbacks", "max_epochs"),
    *("log_every_n_steps", "accumulate_grad_batches", "gradient_clip_val", "sync_batchnorm"),
)
"""Arguments of Lightning's Trainer that are top-level keys."""

UNSUPPORTED: dict[str, tuple[str, str]] = {
    "min_steps": ("training runs for max_epochs", "max_epochs=N"),
    "min_epochs": ("training runs for max_epochs", "max_epochs=N"),
    "limit_predict_batches": ("there is no prediction loop", "{command} train=false ckpt_path=last …"),
    "num_workers": ("built-in data is in memory", "data.loader.num_workers=N for data of your own"),
    "pin_memory": ("built-in data is in memory", "data.loader.pin_memory=true for data of your own"),
    "enable_checkpointing": ("a checkpoint is saved after each epoch", "trainer.barebones=true for none"),
    "inference_mode": ("evaluation computes no gradients", "it without"),
    "use_distributed_sampler": ("each rank takes its share of a global batch", "it without"),
    "reload_dataloaders_every_n_epochs": ("loaders are created once", "a Dataset or sampler with set_epoch"),
    "enable_autolog_hparams": ("loggers get the plan's hyperparameters", "logger=none for no loggers"),
    "model_registry": ("checkpoints are in the run's folder", "a logger of your own that uploads them"),
    "plugins": ("plugins are not supported", "precision=bf16-mixed or process_group.backend=gloo, for example"),
    "profiler": ("profilers are not supported", "torch.profiler in a callback of your own"),
}
"""Keys without a counterpart: the reason, and what to write instead."""


def synonym(key: str, value: object) -> ConfigError | None:
    """Return the error of a key of another tool; None if it is not one. `trainer.max_epochs` is `max_epochs`."""
    name = key.removeprefix("trainer.")
    if name in UNSUPPORTED:
        reason, hint = UNSUPPORTED[name]
        return config_error(key, value, f"there is no such key: {reason}", hint.format(command=typed_command()))
    same = name if name in TOP_LEVEL and name != key else SYNONYMS.get(name)
    if same is None:
        return None
    return config_error(key, value, f"there is no such key, it is {same} here", f"{same}={as_typed(value)}")
