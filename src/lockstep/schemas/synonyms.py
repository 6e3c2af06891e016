"""Words of other tools, of lightning-hydra-template above all, and what to write here in their place."""

import re

SEARCH = "-m experiment=optuna, after pip install hydra-optuna-sweeper"
JOBLIB = "-m without it, which runs one job after another, or hydra/launcher=slurm"
CHECKPOINTS = "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N: best.ckpt and last.ckpt are always saved"
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
    (r"nnodes=(.*)", r"num_nodes=\1"),
    (r"(?:trainer\.)?min_(?:epochs|steps)=.*", f"{NOTHING}: without callbacks=early_stopping a run has max_epochs"),
    (r"gradient_accumulation_steps=(.*)", r"accumulate_grad_batches=\1"),
    (r"resume_from_checkpoint=(.*)", r"ckpt_path=\1"),
    (r"predict(?:=.*)?", "python -m lockstep.predict RUN INPUT"),
    (r"export(?:=.*)?", "torch.onnx.export or torch.export.export of lockstep.load(RUN), in Python"),
    # groups
    (r"trainer=(cpu|gpu)", r"accelerator=\1"),
    (r"trainer=(single|dp|fsdp|ddp|ddp_spawn)", r"strategy=\1 devices=2"),
    (r"trainer=ddp_sim", "strategy=ddp devices=2 accelerator=cpu"),
    (
        r"trainer=(?:mps|tpu)|trainer\.(?:tpu_cores|accelerator)=(?:mps|tpu|\d+)",
        "accelerator=cpu, or accelerator=gpu of CUDA",
    ),
    (r"trainer=default", "trainer.KEY=VALUE, or nothing"),
    (r"(?:trainer\.)?(callbacks|logger)=(?i:null|false)", r"\1=none"),
    (r"callbacks=rich_progress_bar", f"{NOTHING}: a terminal shows a bar"),
    (
        r"callbacks=(?:default|model_checkpoint)",
        "callbacks=[early_stopping,model_summary], or nothing: checkpoints are always saved",
    ),
    (r"logger=(?:many_loggers|comet|neptune|aim)", "logger=[csv,tensorboard], logger=wandb or logger=mlflow"),
    (r"model=mnist", "model=mlp data=mnist"),
    (r"datamodule=(.*)", r"data=\1"),
    (r"(?:paths|extras)=.*", NOTHING),
    (r"hparams_search[=.].*", SEARCH),
    (r"hydra/sweeper=.*", "hydra/sweeper=search, after pip install hydra-optuna-sweeper"),
    (r"hydra\.sweeper\..*", "-m hydra/sweeper=search beside it, or -m experiment=optuna"),
    (r"hydra/launcher=joblib", JOBLIB),
    (r"hydra/launcher=submitit.*", "hydra/launcher=slurm, after pip install hydra-submitit-launcher"),
    (r"local=.*", "--config-dir FOLDER, with options of your own"),
    # the keys of these groups
    (r"trainer\.devices=(?:auto|-1)", "devices=N, as many as there are"),
    (r"trainer\.strategy=auto", "strategy=single, or strategy=ddp devices=2"),
    (r"trainer\.strategy=deepspeed.*", "strategy=fsdp devices=2"),
    (r"trainer\.strategy=(ddp|fsdp)_.*", r"strategy=\1"),
    (TRAINER, r"\1=\2"),
    (r"trainer\.precision=(16|bf16)", r"precision=\1-mixed"),
    (r"trainer\.precision=(32|64)", r"precision=\1-true"),
    (r"trainer\.precision=(.*)", r"precision=\1"),
    (r"trainer\.default_root_dir=(.*)", r"hydra.run.dir=\1"),
    (r"trainer\.enable_checkpointing=.*", "trainer.barebones=true for a run without checkpoints and loggers"),
    (r"paths\.data_dir=(.*)|data\.data_dir=(.*)", r"data.root=\1\2"),
    (r"paths\..*", "hydra.run.dir=FOLDER for one run, or name=NAME for logs/NAME"),
    (r"(?:extras\.)?(?:print_config|enforce_tags|ignore_warnings)=(?i:false)", f"{NOTHING}: this is the default"),
    (r"(?:extras\.)?print_config=.*", "--cfg job"),
    (r"(?:extras\.)?enforce_tags=.*", "tags=[mnist]"),
    (r"(?:extras\.)?ignore_warnings=.*", "PYTHONWARNINGS=ignore before python"),
    (r"model\.compile=(.*)", r"compile=\1"),
    (r"(?:model\.)?(?:lr|learning_rate)=(.*)", r"optimizer.lr=\1"),
    (r"model\.(optimizer\..*)", r"\1"),
    (r"model\.scheduler\..*", "scheduler=onecycle or scheduler=warmup_linear, or a YAML of yours in conf/scheduler"),
    (r"model\.net\.lin\d_size=(.*)", r"model.net.hidden=[\1,128,64]"),
    (r"data\.batch_size=(.*)", r"batch_size=\1"),
    (r"data\.train_val_test_split=.*", "data.val_size=5000"),
    (r"(?:data\.)?(num_workers|pin_memory|persistent_workers)=(.*)", r"data.loader.\1=\2"),
    # words of earlier versions
    (r"data=model", "data=none"),
    (r"task=(?:auto|classification)", f"{NOTHING}: model=mlp and the like are lockstep.models.Classifier"),
    (r"task=regression", "model._target_=lockstep.models.Regressor, or model=regression"),
    (r"task=autoencoding", "model=autoencoder"),
    (r"task=language_modelling", "model=char_rnn data=text"),
    (r"(?:task|model)\.ignore_index=(.*)", r"+model.ignore_index=\1"),
    (r"model\.(scheduler_interval|monitor)=(.*)", r"+model.\1=\2"),
    (r"task[.=].*", "a LightningModule with this loss, as python -m lockstep.new mine writes one"),
    (r"model\.(hidden|dropout|norm|width|layers)=(.*)", r"model.net.\1=\2"),
    (r"optimizer\._?decay_bias_and_norm_?=(?i:false)", "optimizer=adamw_groups"),
    (r"optimizer\._?decay_bias_and_norm_?=.*", f"{NOTHING}: optimizer=adamw_groups spares biases and norm layers"),
    (r"scheduler\._interval_=(.*)", r"+model.scheduler_interval=\1"),
    (r"scheduler\._monitor_=(.*)", r"+model.monitor=\1"),
    (r"dropout_rng=.*", f"{NOTHING}: strategy=virtual devices=N draws the masks of ddp devices=N"),
    (r"data\.(val|test)=(.*)", r"data.\1_size=\2"),
    (r"data\._?split_?\.(val|test)=(.*)", r"data.\1_size=\2"),
    (r"data\._?split_?=.*", "data.val_size=0.1 data.test_size=0.1"),
    (r"data\._loader_\.(.*)", r"data.loader.\1"),
    (r"data\._?classes_?=(.*)", r"data.num_classes=\1"),
    (r"data\._?targets_?=(.*)", r"data.target_key=\1"),
    (r"data\._inputs_=(.*)", r"data.input_key=\1"),
    (r"data\.dataset\.(.*)", r"data.dataset.\1 beside data._target_=lockstep.datamodules.Datasets"),
    (r"data\.predict=(.*)", r"callbacks=fitted_line callbacks.fitted_line.predict=\1"),
    (r"logger\.wandb\.tags=(.*)", r"tags=\1"),
    (r"logger\.wandb\.(?:entity|group|job_type|notes|name)=.*", "WANDB_ENTITY or WANDB_RUN_GROUP in the environment"),
    (r"callbacks\.model_checkpoint\.(monitor|mode)=(.*)", r"checkpoint.\1=\2"),
    (r"callbacks\.model_checkpoint\..*", CHECKPOINTS),
)
"""Patterns of what is typed, and what to write; the first match counts. Keys that exist are never looked up."""


def synonym(word: str) -> str | None:
    """Return what to write here in place of an override of another tool, or None if none is known."""
    matches = ((re.fullmatch(pattern, word), hint) for pattern, hint in WORDS)
    return next((match.expand(hint) for match, hint in matches if match), None)
