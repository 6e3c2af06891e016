"""The words of lightning-hydra-template that are typed most, and a net without a module: what to write instead."""

import re

from lockstep.base.config_error import ConfigError, config_error

NOTHING = "nothing in its place"

WORDS: tuple[tuple[str, str], ...] = (
    (r"trainer=(cpu|gpu)", r"accelerator=\1"),
    (r"trainer=ddp(?:_sim)?", "strategy=ddp devices=2"),
    (r"trainer=(?:mps|tpu)|trainer\.accelerator=(?:mps|tpu)", "accelerator=cpu, or accelerator=gpu"),
    (r"trainer=default", "trainer.KEY=VALUE, or nothing"),
    (r"trainer\.precision=(16|bf16)(?:-mixed)?", r"precision=\1-mixed"),
    (r"trainer\.precision=(32|64)", r"precision=\1-true"),
    (r"trainer\.min_(?:epochs|steps)=.*", f"{NOTHING}: without callbacks=early_stopping a run has max_epochs"),
    (r"(?:trainer\.devices|gpus)=-1", "devices=auto"),
    (r"(?:num_)?gpus=(.*)", r"devices=\1"),
    (r"(?:num_)?epochs=(.*)", r"max_epochs=\1"),
    (r"(?:trainer\.)?(callbacks|logger)=(?i:null|false)", r"\1=none"),
    (
        r"trainer\.(max_epochs|devices|num_nodes|accelerator|strategy|precision|gradient_clip_val|sync_batchnorm"
        r"|accumulate_grad_batches|log_every_n_steps|profiler|callbacks|logger)=(.*)",
        r"\1=\2",
    ),
    (r"seed_everything=(\d+)", r"seed=\1"),
    (r"task_name=(.*)", r"name=\1"),
    (r"resume_from_checkpoint=(.*)", r"ckpt_path=\1"),
    (r"callbacks=(?:default|model_checkpoint|rich_progress_bar)", f"{NOTHING}: each run has checkpoints and a bar"),
    (r"callbacks\.model_checkpoint\..*", "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N"),
    (r"logger=(?:many_loggers|comet|neptune|aim)", "logger=[csv,tensorboard], logger=wandb or logger=mlflow"),
    (r"model=mnist", "model=mlp data=mnist"),
    (r"model\.net\.lin\d_size=(.*)", r"model.net.hidden=[\1,128,64]"),
    (r"model\.compile=(.*)", r"compile=\1"),
    (r"(?:model\.)?(?:lr|learning_rate)=(.*)", r"optimizer.lr=\1"),
    (r"model\.(optimizer\..*)", r"\1"),
    (r"datamodule=(.*)", r"data=\1"),
    (r"data\.batch_size=(.*)", r"batch_size=\1"),
    (r"data\.train_val_test_split=.*", "data.val_size=5000"),
    (
        r"(?:data\.)?(num_workers|pin_memory)=(.*)",
        r"data.loader.\1=\2 with a Dataset of yours, or nothing: built-in data is in memory",
    ),
    (r"model\.(scheduler_interval|monitor)=(.*)", r"+model.\1=\2"),
    (r"(?:data|paths)\.data_dir=(.*)", r"data.root=\1"),
    (r"paths\..*", "hydra.run.dir=FOLDER for one run, or name=NAME for logs/NAME"),
    (r"(?:extras\.)?print_config=.*", "--cfg job"),
    (r"(?:paths|extras|local)[.=].*", NOTHING),
    (r"hparams_search=.*", "-m experiment=optuna, after pip install hydra-optuna-sweeper"),
    (r"hydra/launcher=joblib", "-m without it, which runs one job after another, or hydra/launcher=slurm"),
)
"""Patterns of what is typed, and what to write; the first match counts. Keys that exist are never looked up."""


def synonym(word: str) -> str | None:
    """Return what to write here in place of an override of the template, or None if none is known."""
    matches = ((re.fullmatch(pattern, word), hint) for pattern, hint in WORDS)
    return next((match.expand(hint) for match, hint in matches if match), None)


def net_error(path: str) -> ConfigError:
    """Return the error of a model that is a plain net, with the YAML to write."""
    hint = f"_target_: lockstep.models.Classifier, net: {{_target_: {path}, …}}, "
    hint += "optimizer: ${optimizer}, scheduler: ${scheduler}"
    return config_error("model._target_", path, "it is a net, and a LightningModule trains it", hint)
