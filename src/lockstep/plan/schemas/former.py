"""Words of other tools, such as lightning-hydra-template, and of earlier versions: what to write in their place."""

import re
from collections.abc import Mapping

from lockstep.base.config_error import ConfigError, config_error

NOTHING = "nothing in its place"
TRAINER = (
    r"trainer\.(max_epochs|devices|num_nodes|accelerator|strategy|gradient_clip_val|accumulate_grad_batches|"
    r"sync_batchnorm|log_every_n_steps|profiler|callbacks|logger)=(.*)"
)

WORDS: tuple[tuple[str, str], ...] = (
    # keys at the top
    (r"task_name=(.*)", r"name=\1"),
    (r"(?:num_|n_)?epochs=(.*)|max_epoch=(.*)", r"max_epochs=\1\2"),
    (r"(?:num_)?gpus=(.*)|num_processes=(.*)|nproc_per_node=(.*)", r"devices=\1\2\3"),
    (r"(?:trainer\.)?min_(?:epochs|steps)=.*", f"{NOTHING}: without callbacks=early_stopping a run has max_epochs"),
    (r"gradient_accumulation_steps=(.*)", r"accumulate_grad_batches=\1"),
    (r"resume_from_checkpoint=(.*)", r"ckpt_path=\1"),
    (r"seed_everything=(?:(\d+)|.*)", r"seed=\1"),
    (r"predict(?:=.*)?", "python -m lockstep.predict RUN INPUT"),
    (r"export(?:=.*)?", "torch.onnx.export or torch.export.export of lockstep.load(RUN), in Python"),
    # groups
    (r"trainer=(cpu|gpu)", r"accelerator=\1"),
    (r"trainer=(single|dp|fsdp|ddp|ddp_spawn)", r"strategy=\1 devices=2"),
    (r"trainer=ddp_sim", "strategy=ddp devices=2 accelerator=cpu"),
    (r"trainer=(?:mps|tpu)|trainer\.(?:tpu_cores|accelerator)=(?:mps|tpu)", "accelerator=cpu, or accelerator=gpu"),
    (r"(?:trainer\.)?(callbacks|logger)=(?i:null|false)", r"\1=none"),
    (r"callbacks=(?:default|model_checkpoint|rich_progress_bar)", f"{NOTHING}: each run has checkpoints and a bar"),
    (r"logger=(?:many_loggers|comet|neptune|aim)", "logger=[csv,tensorboard], logger=wandb or logger=mlflow"),
    (r"model=mnist", "model=mlp data=mnist"),
    (r"datamodule=(.*)", r"data=\1"),
    (r"local=.*", "--config-dir FOLDER, with files of your own for any group"),
    (r"(?:paths|extras)=.*", NOTHING),
    (r"trainer=default", "trainer.KEY=VALUE, or nothing"),
    (r"hparams_search[=.].*|hydra/sweeper=.*", "-m experiment=optuna, after pip install hydra-optuna-sweeper"),
    (r"hydra\.sweeper\..*", "-m hydra/sweeper=search beside it, or -m experiment=optuna"),
    (r"hydra/launcher=joblib", "-m without it, which runs one job after another, or hydra/launcher=slurm"),
    (r"hydra/launcher=submitit.*", "hydra/launcher=slurm, after pip install hydra-submitit-launcher"),
    # the keys of these groups
    (r"(?:trainer\.devices|gpus)=-1", "devices=auto"),
    (r"trainer\.strategy=auto", "strategy=single, or strategy=ddp devices=2"),
    (r"trainer\.strategy=(ddp|fsdp)_.*", r"strategy=\1"),
    (TRAINER, r"\1=\2"),
    (r"trainer\.precision=(16|bf16)", r"precision=\1-mixed"),
    (r"trainer\.precision=(32|64)", r"precision=\1-true"),
    (r"trainer\.precision=(.*)", r"precision=\1"),
    (r"paths\.data_dir=(.*)|data\.data_dir=(.*)", r"data.root=\1\2"),
    (r"paths\..*", "hydra.run.dir=FOLDER for one run, or name=NAME for logs/NAME"),
    (r"(?:extras\.)?(?:print_config|enforce_tags|ignore_warnings)=(?i:false)", f"{NOTHING}: this is the default"),
    (r"(?:extras\.)?print_config=.*", "--cfg job"),
    (r"model\.compile=(.*)", r"compile=\1"),
    (r"(?:model\.)?(?:lr|learning_rate)=(.*)", r"optimizer.lr=\1"),
    (r"model\.(optimizer\..*)", r"\1"),
    (r"model\.scheduler\..*", "scheduler=onecycle or scheduler=warmup_linear, or a YAML of yours in conf/scheduler"),
    (r"model\.net\.lin\d_size=(.*)", r"model.net.hidden=[\1,128,64]"),
    (r"data\.batch_size=(.*)", r"batch_size=\1"),
    (r"data\.train_val_test_split=.*", "data.val_size=5000"),
    (r"(?:data\.)?(num_workers|pin_memory|persistent_workers)=(.*)", r"data.loader.\1=\2"),
    (r"callbacks\.model_checkpoint\..*", "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N"),
    # words of version 0.1
    (r"data=model", "data=none"),
    (r"task[.=].*", "model=regression, model=autoencoder, model=char_rnn or, for another loss, a LightningModule"),
    (r"model\.(scheduler_interval|monitor)=(.*)", r"+model.\1=\2"),
    (r"model\.(hidden|dropout|norm|width|layers)=(.*)", r"model.net.\1=\2"),
    (r"data\.(?:_?split_?\.)?(val|test)=(.*)", r"data.\1_size=\2"),
)
"""Patterns of what is typed, and what to write; the first match counts. Keys that exist are never looked up."""


def synonym(word: str) -> str | None:
    """Return what to write here in place of an override of another tool, or None if none is known."""
    matches = ((re.fullmatch(pattern, word), hint) for pattern, hint in WORDS)
    return next((match.expand(hint) for match, hint in matches if match), None)


def net_error(path: str) -> ConfigError:
    """Return the error of a model that is a plain net, with the YAML to write."""
    hint = f"_target_: lockstep.models.Classifier, net: {{_target_: {path}, …}}, "
    hint += "optimizer: ${optimizer}, scheduler: ${scheduler}"
    return config_error("model._target_", path, "it is a net, and a LightningModule trains it", hint)


def data_error(values: Mapping[str, object], kind: str) -> ConfigError:
    """Return the error of data that is a Dataset or a DataLoader, with the YAML to write."""
    hint = "_target_: lockstep.datamodules.Datasets, batch_size: ${batch_size}, dataset: {_target_: PATH, …}"
    return config_error("data", values, f"it is a {kind}, and a LightningDataModule loads it", hint)
