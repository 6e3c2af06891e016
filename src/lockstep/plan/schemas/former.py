"""The words of lightning-hydra-template that are typed most, and what to write instead."""

import re

NOTHING = "nothing in its place"

WORDS: tuple[tuple[str, str], ...] = (
    (r"trainer=(cpu|gpu)", r"accelerator=\1"),
    (r"trainer=ddp(?:_sim)?", "strategy=ddp devices=2"),
    (r"trainer\.precision=(16|bf16)(?:-mixed)?", r"precision=\1-mixed"),
    (r"trainer\.precision=(32|64)", r"precision=\1-true"),
    (r"(?:trainer\.devices|gpus)=-1", "devices=auto"),
    (r"(?:num_)?gpus=(.*)", r"devices=\1"),
    (r"(?:num_)?epochs=(.*)", r"max_epochs=\1"),
    (r"(?:trainer\.)?(callbacks|logger)=(?i:null|false)", r"\1=none"),
    (
        r"trainer\.(max_epochs|devices|num_nodes|accelerator|strategy|precision|gradient_clip_val|sync_batchnorm"
        r"|accumulate_grad_batches|log_every_n_steps|profiler|callbacks|logger|model_summary)=(.*)",
        r"\1=\2",
    ),
    (r"seed_everything=(\d+)", r"seed=\1"),
    (r"task_name=(.*)", r"name=\1"),
    (r"callbacks=(?:default|model_checkpoint|rich_progress_bar)", f"{NOTHING}: each run has checkpoints and a bar"),
    (r"callbacks\.model_checkpoint\..*", "checkpoint.monitor=METRIC or checkpoint.every_n_steps=N"),
    (r"model\.net\.lin\d_size=(.*)", r"model.net.hidden=[\1,128,64]"),
    (r"model\.compile=(.*)", r"compile=\1"),
    (r"(?:model\.)?(?:lr|learning_rate)=(.*)", r"optimizer.lr=\1"),
    (r"model\.(optimizer\..*)", r"\1"),
    (r"data\.batch_size=(.*)", r"batch_size=\1"),
    (r"(?:data|paths)\.data_dir=(.*)", r"data.root=\1"),
    (r"(?:extras\.)?print_config=.*", "--cfg job"),
    (r"(?:paths|extras|local)[.=].*", NOTHING),
)
"""Patterns of what is typed, and what to write; the first match counts. Keys that exist are never looked up."""


def synonym(word: str) -> str | None:
    """Return what to write here in place of an override of the template, or None if none is known."""
    matches = ((re.fullmatch(pattern, word), hint) for pattern, hint in WORDS)
    return next((match.expand(hint) for match, hint in matches if match), None)
