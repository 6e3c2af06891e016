"""One table of everything that a run leaves, and how each is compared: what is not compared is listed.

A key is `FILE:PART.PART`; the first matching pattern counts. A key that matches none is listed as unknown. The tensors
of a record are quantities of their own, by their names.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """`how`: `exact` in any two worlds, within the tolerance (`bound`), or `bits` where the tolerance is 0, else not.

    `itself`: compared with what the same run says of it elsewhere. `not`: not compared, for this `reason`.
    """

    quantity: str = ""
    how: Literal["exact", "bound", "bits", "itself", "not"] = "not"
    reason: str = ""


exact, bound = partial(Entry, how="exact"), partial(Entry, how="bound")
bits = partial(Entry, how="bits", reason="what is equal only where identical bits are expected")
left_out = partial(Entry, "", "not")

ITSELF = "each run with itself"
AGAINST_ITSELF = Entry(ITSELF, "itself")
NAMES = left_out("names and paths")
TIMES = left_out("times")
ACCOUNTED_FOR = left_out("what the tolerance accounts for")
WATCHED = left_out("how a run is watched and saved")
BEGUN = left_out("where it resumed from")
CURVES = left_out("curves and logs")
VERDICTS = left_out("verdicts of comparing")
LIGHTNING = left_out("Lightning's own state, which follows from the position")
UNKNOWN = left_out("what no run of this version leaves")

_WORLD = (
    *("engine*", "strategy*", "devices", "num_nodes", "accelerator", "threads", "precision"),
    *("sync_batchnorm", "dropout_rng"),
)
_WORLD_MEASURED = ("world_size", "gradient_sync", "backend", "micro_batches", "memory_format", "per_rank_buffers")
_WATCHED = (
    *("logger*", "process_group*", "checkpoint*", "record*", "show_shapes", "model_summary", "log_every_n_steps"),
    "detect_nan",
    *("optimized_metric", "trainer.limit_test_batches", "trainer.fast_dev_run", "trainer.deterministic"),
    *("data._loader_.num_workers", "data._loader_.pin_memory", "data._loader_.prefetch_factor"),
    *("data._loader_.persistent_workers", "data._loader_.timeout"),
    *("trainer.benchmark", "trainer.detect_anomaly", "trainer.enable_progress_bar"),
)
_CHOSEN = ("model", "data", "optimizer", "lr", "scheduler", "batch_size", "seed")

BESIDE_LAST = ("best.ckpt", "previous.ckpt")
BESIDE_STATE = left_out("what best.ckpt and previous.ckpt hold beside the training state")
TRAINING_STATE = {
    "state_dict.*": bound("weights saved"),
    "optimizer_states*": bound("optimizer state"),
    "lr_schedulers*": bound("schedule"),
    "MixedPrecision*": bound("gradient scaler"),
}

TABLE: dict[str, Entry] = {
    **{f"{name}:": exact(name) for name in ("last.ckpt", "best.ckpt", "previous.ckpt", "confusion.csv")},
    **{f"{name}:": exact(name) for name in ("metrics.json", "record.jsonl", "config.yaml")},
    **dict.fromkeys(("tensorboard/*:", "csv/*:", "wandb/*:", "mlruns/*:", "ranks/*:"), CURVES),
    **dict.fromkeys(("comparison.json:", "failure.json:"), VERDICTS),
    **dict.fromkeys(
        ("config.yaml:name", "config.yaml:run_dir", "config.yaml:data.root", "config.yaml:command*"), NAMES
    ),
    **dict.fromkeys(("config.yaml:ckpt_path", "config.yaml:resume"), BEGUN),
    **{f"config.yaml:{key}": ACCOUNTED_FOR for key in (*_WORLD, "memory_format")},
    **{f"config.yaml:{key}": WATCHED for key in _WATCHED},
    "config.yaml:*": exact("configuration"),
    **{f"metrics.json:{key}": ACCOUNTED_FOR for key in (*_WORLD, *_WORLD_MEASURED)},
    **{f"metrics.json:{key}": exact("configuration") for key in _CHOSEN},
    **dict.fromkeys(("metrics.json:epochs", "metrics.json:steps"), exact("steps")),
    **dict.fromkeys(("metrics.json:*seconds", "metrics.json:epoch_seconds_*"), TIMES),
    "metrics.json:samples_per_second": TIMES,
    **dict.fromkeys(("metrics.json:verdict", "metrics.json:within_tolerance", "metrics.json:max_diff"), VERDICTS),
    **dict.fromkeys(("metrics.json:monitor", "metrics.json:mode"), WATCHED),
    **dict.fromkeys(("metrics.json:val/*", "metrics.json:best"), bound("validation")),
    "metrics.json:train/*": bound("train"),
    "metrics.json:test/*": bound("test"),
    **dict.fromkeys(("metrics.json:slope", "metrics.json:intercept"), bound("line learned")),
    "metrics.json:digest": bits("digest"),
    **{f"record.jsonl:run.{key}": ACCOUNTED_FOR for key in (*_WORLD, *_WORLD_MEASURED)},
    **{f"record.jsonl:run.{key}": exact("configuration") for key in _CHOSEN},
    "record.jsonl:run.missing_steps": BEGUN,
    **dict.fromkeys(("record.jsonl:step.epoch", "record.jsonl:step.step"), exact("steps")),
    "record.jsonl:step.samples": exact("samples"),
    "record.jsonl:step.ids": exact("sample ids"),
    "record.jsonl:step.lr": exact("learning rate"),
    "record.jsonl:step.loss_sum": bound("loss"),
    "record.jsonl:step.grad_norm": bound("gradient norm"),
    "record.jsonl:step.grad_norm_spread": exact("ranks in step"),
    "record.jsonl:step.logged.*": bound("logged"),
    "record.jsonl:step.metrics.*": bits("metrics of batches"),
    "record.jsonl:fingerprint.*": bits("fingerprints"),
    "record.jsonl:validation.*": bound("validation"),
    "record.jsonl:tensor.*": bound("parameters and buffers"),
    "confusion.csv:*": bound("confusion matrix"),
    **dict.fromkeys(("last.ckpt:epoch", "last.ckpt:global_step", "last.ckpt:lockstep.position.*"), exact("position")),
    **{f"last.ckpt:{key}": entry for key, entry in TRAINING_STATE.items()},
    "last.ckpt:state_dict.*": AGAINST_ITSELF,
    **{f"last.ckpt:lockstep.identity.{key}": ACCOUNTED_FOR for key in _WORLD},
    "last.ckpt:lockstep.identity.*": exact("configuration"),
    "last.ckpt:lockstep.record*": AGAINST_ITSELF,
    "last.ckpt:lockstep.results*": bound("results"),
    "last.ckpt:lockstep.sum_names*": exact("configuration"),
    "last.ckpt:lockstep.prefix": exact("configuration"),
    "last.ckpt:lockstep.ended": exact("position"),
    "last.ckpt:lockstep.best_yet": bits("best epoch"),
    "last.ckpt:lockstep.best*": bound("best epoch"),
    "last.ckpt:lockstep.ranks.*.random.*": bits("random states"),
    "last.ckpt:lockstep.ranks.*.sums.curve": CURVES,
    "last.ckpt:lockstep.ranks.*.sums.*": bits("partial sums"),
    "last.ckpt:lockstep.ranks.*.gradients*": bits("partial gradients"),
    "last.ckpt:lockstep.ranks.*.buffers*": bits("buffers of each rank"),
    "last.ckpt:lockstep.ranks.*.module*": bits("what a module has logged so far"),
    **{
        f"last.ckpt:{key}": LIGHTNING
        for key in ("pytorch-lightning_version", "loops*", "callbacks*", "hparams*", "hyper_parameters*")
    },
    **{f"{name}:lockstep.position.*": bits(name) for name in BESIDE_LAST},
    **{f"{name}:{key}": entry for name in BESIDE_LAST for key, entry in TRAINING_STATE.items()},
    **dict.fromkeys(("best.ckpt:*", "previous.ckpt:*"), BESIDE_STATE),
}
"""`FILE:` is whether the file is there."""


EXACT = frozenset(entry.quantity for entry in TABLE.values() if entry.how in ("exact", "itself"))
"""What is identical in every world, at every step."""


@cache
def entry_of(key: str) -> tuple[str, Entry]:
    """The first pattern that matches a key, and its entry; UNKNOWN where none does.

    Cached: a checkpoint has thousands of keys, most of them words of random states, and two runs have the same.
    """
    found = ((pattern, entry) for pattern, entry in TABLE.items() if fnmatchcase(key, pattern))
    return next(found, (key, UNKNOWN))
