"""The table of everything that a run leaves, and how each value is compared with another run's.

A key is `FILE:PART.PART`; `FILE:` stands for the file itself. The first pattern that matches a key counts. Of several
differences at one optimizer step the one whose rule comes first is the first: causes stand before their effects.
"""

from fnmatch import fnmatchcase
from functools import cache
from typing import Literal, NamedTuple

from lockstep.plan.schemas import groups

How = Literal["exact", "bound", "bits", "not"]


class Rule(NamedTuple):
    """The rule by which the values of matching keys are compared, and the quantity that they belong to.

    `exact`: equal in any two worlds. `bound`: within the tolerance. `bits`: only if the tolerance is 0. `not`: not
    compared; `quantity` is then the reason.
    """

    how: How
    quantity: str
    pattern: str
    order: int


CONFIGURATION, ONE_RUN = "configuration", "files of one run"
UNKNOWN = "keys unknown to this version"
BITS_ONLY = "digests, best epochs and states of ranks (only identical runs share them)"
EXPECTED = "what the tolerance accounts for"
MONITORING = "how a run is named, watched and saved"
CURVES = "curves and logs"
VERDICTS = "verdicts of comparing"
UNWRITTEN = "what engine=raw does not write"
ONE_WRITES = "what only one of them records, and fingerprints"

FILES = ("last.ckpt", "best.ckpt", "confusion.csv", "metrics.json", "record.jsonl", "config.yaml")
WORLD = " ".join(
    f"{key}*" for key in (*groups.WORLD, "precision", "sync_batchnorm", "dropout_rng", "compile", "deterministic")
)
WATCHED = " ".join(f"{key}*" for key in (*groups.MONITORING, "tags", "run_dir", "data.root"))
LOADERS = "num_workers pin_memory persistent_workers prefetch_factor timeout"
RUN = "metrics.json: record.jsonl:run."
RANKS = "last.ckpt:lockstep.ranks.*."
CHECKS = "deterministic benchmark detect_anomaly"
HPARAMS = "hparams* hyper_parameters* datamodule_h*"
OPTIONAL = ("confusion.csv:", "best.ckpt:", "last.ckpt:lockstep.", "last.ckpt:Mixed", "record.jsonl:fingerprint.")
"""Beginnings of keys that a run of engine=raw may leave out."""
NAMED = "record.jsonl:fingerprint."  # they count the names of parameters, which another program chooses

RULES: tuple[tuple[How, str, str, str], ...] = (
    *(("exact", name, name, ":") for name in FILES),
    ("not", "the checkpoint before last.ckpt", "previous.ckpt", ":"),
    ("not", MONITORING, "shards-", "*:"),
    ("not", CURVES, "tensorboard/ csv/ wandb/ ranks/ profiler/ report.", "*:"),
    ("not", VERDICTS, "comparison.json failure.json", ":"),
    ("not", EXPECTED, "config.yaml:", WORLD),
    ("not", MONITORING, "config.yaml:", WATCHED),
    ("not", MONITORING, "config.yaml:data. config.yaml:data.loader.", LOADERS),
    ("not", MONITORING, "config.yaml:trainer.", f"limit_test_batches fast_dev_run enable_progress_bar {CHECKS}"),
    ("exact", CONFIGURATION, "config.yaml:", "*"),
    (
        "not",
        EXPECTED,
        RUN,
        f"{WORLD} world_size gradient_sync backend micro_batches per_rank_buffers data_size mesh_shape",
    ),
    ("exact", CONFIGURATION, RUN, "model data optimizer lr scheduler batch_size seed optimizers.*"),
    ("exact", "steps", "record.jsonl:step.", "epoch step"),
    ("exact", "samples", "record.jsonl:step.", "samples"),
    ("exact", "sample ids", "record.jsonl:step.", "ids"),
    ("exact", "contents of batches", "record.jsonl:step.", "contents"),
    ("exact", "learning rate", "record.jsonl:step.", "lr"),
    ("bound", "loss", "record.jsonl:step.", "loss_sum"),
    ("bound", "gradient norm", "record.jsonl:step.", "grad_norm"),
    ("exact", ONE_RUN, "record.jsonl:", "altered.*"),
    ("exact", "ranks of one run", "record.jsonl:", "step.grad_norm_spread ranks.*"),
    ("bound", "logged", "record.jsonl:step.", "logged.*"),
    # the mean over ranks of a metric is no metric of the global batch
    ("bits", "metrics of batches", "record.jsonl:step.", "metrics.*"),
    ("bits", "fingerprints", "record.jsonl:", "fingerprint.*"),
    ("bound", "validation", "record.jsonl:", "validation.*"),
    ("exact", "steps", "metrics.json:", "epochs steps"),
    ("not", "times", "metrics.json:", "*seconds epoch_seconds_* samples_per_second"),
    ("not", VERDICTS, "metrics.json:", "verdict within_tolerance max_diff"),
    ("exact", CONFIGURATION, "metrics.json:", "parameters"),
    ("not", MONITORING, "metrics.json:", "monitor mode commit"),
    ("bits", "best epoch", "metrics.json:", "best_epoch"),
    ("bound", "validation", "metrics.json:", "val/* best"),
    *(("bound", stage, "metrics.json:", f"{stage}/*") for stage in ("train", "test")),
    ("bound", "confusion matrix", "confusion.csv:", "*"),
    ("bound", "line learned", "metrics.json:", "slope intercept"),
    ("bits", "digest", "metrics.json:", "digest"),
    ("bits", "parameters and buffers", "record.jsonl:", "tensor.*"),
    ("exact", "position", "last.ckpt:", "epoch global_step lockstep.position.* lockstep.ended"),
    ("not", EXPECTED, "last.ckpt:lockstep.identity.", WORLD),
    ("exact", CONFIGURATION, "last.ckpt:lockstep.", "identity.*"),
    ("bound", "results", "last.ckpt:lockstep.", "results*"),
    ("not", "the saved plan", "last.ckpt:lockstep.", "plan*"),
    ("not", "the saved best epoch", "last.ckpt:lockstep.", "best*"),
    ("bits", "state of each rank", RANKS, "*"),
    ("not", "sizes of records", "last.ckpt:lockstep.", "record*"),
    ("not", "Lightning's own state", "last.ckpt:", f"pytorch-lightning_version loops* callbacks* {HPARAMS}"),
    ("bound", "weights saved", "last.ckpt:", "state_dict.* current_model_state.*"),
    ("not", EXPECTED, "last.ckpt:optimizer_states.*.param_groups.*.", "foreach fused capturable differentiable"),
    ("bits", "best epoch", "best.ckpt:", "epoch"),
    ("bound", "best weights", "best.ckpt:", "state_dict.*"),
    ("bound", "optimizer state", "last.ckpt:", "optimizer_states*"),
    ("bound", "schedule", "last.ckpt:", "lr_schedulers*"),
    ("bound", "gradient scaler", "last.ckpt:", "MixedPrecision*"),
)
"""How, the quantity, what a key begins with, and the patterns of its rest; the last two are lists of words."""


TABLE = [
    Rule(how, quantity, prefix + pattern, order)
    for order, (how, quantity, prefixes, patterns) in enumerate(RULES)
    for prefix in prefixes.split()
    for pattern in patterns.split()
]


@cache
def rule_of(key: str) -> Rule:
    """Return the first rule that matches a key. Cached: a checkpoint has thousands of keys, and two runs the same."""
    return next((rule for rule in TABLE if fnmatchcase(key, rule.pattern)), Rule("not", UNKNOWN, key, len(RULES)))
