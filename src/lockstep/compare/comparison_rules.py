"""One table of everything that a run leaves, and how each is compared: what is not compared is listed.

A key is `FILE:PART.PART`; the first matching pattern counts. A key that matches none is listed as unknown. The tensors
of a record are quantities of their own, by their names.
"""

from collections.abc import Iterable
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
    *("data.loader.num_workers", "data.loader.pin_memory", "data.loader.prefetch_factor"),
    *("data.loader.persistent_workers", "data.loader.timeout"),
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

RULES: tuple[tuple[str, Iterable[str], Entry], ...] = (
    *((f"{name}:", [""], exact(name)) for name in ("last.ckpt", *BESIDE_LAST, "confusion.csv")),
    *((f"{name}:", [""], exact(name)) for name in ("metrics.json", "record.jsonl", "config.yaml")),
    ("", ("tensorboard/*:", "csv/*:", "wandb/*:", "mlruns/*:", "ranks/*:"), CURVES),
    ("", ("comparison.json:", "failure.json:"), VERDICTS),
    ("config.yaml:", ("name", "run_dir", "data.root", "command*"), left_out("names and paths")),
    ("config.yaml:", ("ckpt_path", "resume"), BEGUN),
    ("config.yaml:", (*_WORLD, "memory_format"), ACCOUNTED_FOR),
    ("config.yaml:", _WATCHED, WATCHED),
    ("config.yaml:", ["*"], exact("configuration")),
    *((file, (*_WORLD, *_WORLD_MEASURED), ACCOUNTED_FOR) for file in ("metrics.json:", "record.jsonl:run.")),
    *((file, _CHOSEN, exact("configuration")) for file in ("metrics.json:", "record.jsonl:run.")),
    ("metrics.json:", ("epochs", "steps"), exact("steps")),
    ("metrics.json:", ("*seconds", "epoch_seconds_*", "samples_per_second"), left_out("times")),
    ("metrics.json:", ("verdict", "within_tolerance", "max_diff"), VERDICTS),
    ("metrics.json:", ("monitor", "mode"), WATCHED),
    ("metrics.json:", ("val/*", "best"), bound("validation")),
    ("metrics.json:", ["train/*"], bound("train")),
    ("metrics.json:", ["test/*"], bound("test")),
    ("metrics.json:", ("slope", "intercept"), bound("line learned")),
    ("metrics.json:", ["digest"], bits("digest")),
    ("record.jsonl:", ["run.missing_steps"], BEGUN),
    ("record.jsonl:", ("step.epoch", "step.step"), exact("steps")),
    ("record.jsonl:", ["step.samples"], exact("samples")),
    ("record.jsonl:", ["step.ids"], exact("sample ids")),
    ("record.jsonl:", ["step.lr"], exact("learning rate")),
    ("record.jsonl:", ["step.loss_sum"], bound("loss")),
    ("record.jsonl:", ["step.grad_norm"], bound("gradient norm")),
    ("record.jsonl:", ["step.grad_norm_spread"], exact("ranks in step")),
    ("record.jsonl:", ["step.logged.*"], bound("logged")),
    ("record.jsonl:", ["step.metrics.*"], bits("metrics of batches")),
    ("record.jsonl:", ["fingerprint.*"], bits("fingerprints")),
    ("record.jsonl:", ["validation.*"], bound("validation")),
    ("record.jsonl:", ["tensor.*"], bound("parameters and buffers")),
    ("confusion.csv:", ["*"], bound("confusion matrix")),
    ("last.ckpt:", ("epoch", "global_step", "lockstep.position.*", "lockstep.ended"), exact("position")),
    ("last.ckpt:lockstep.identity.", _WORLD, ACCOUNTED_FOR),
    ("last.ckpt:lockstep.", ("identity.*", "sum_names*", "prefix"), exact("configuration")),
    ("last.ckpt:lockstep.", ["results*"], bound("results")),
    ("last.ckpt:lockstep.", ["best_yet"], bits("best epoch")),
    ("last.ckpt:lockstep.", ["best*"], bound("best epoch")),
    ("last.ckpt:lockstep.ranks.*.", ["random.*"], bits("random states")),
    ("last.ckpt:lockstep.ranks.*.", ["sums.curve"], CURVES),
    ("last.ckpt:lockstep.ranks.*.", ["sums.*"], bits("partial sums")),
    ("last.ckpt:lockstep.ranks.*.", ["gradients*"], bits("partial gradients")),
    ("last.ckpt:lockstep.ranks.*.", ["buffers*"], bits("buffers of each rank")),
    ("last.ckpt:lockstep.ranks.*.", ["module*"], bits("what a module has logged so far")),
    ("last.ckpt:", ("pytorch-lightning_version", "loops*", "callbacks*", "hparams*", "hyper_parameters*"), LIGHTNING),
    *((f"{name}:", ["lockstep.position.*"], bits(name)) for name in BESIDE_LAST),
    *((f"{name}:", [key], entry) for name in ("last.ckpt", *BESIDE_LAST) for key, entry in TRAINING_STATE.items()),
    ("last.ckpt:", ("state_dict.*", "lockstep.record*"), AGAINST_ITSELF),
    *((f"{name}:", ["*"], BESIDE_STATE) for name in BESIDE_LAST),
)
"""What a key begins with, the patterns of its rest, and how it is compared."""
TABLE = {f"{begin}{rest}": entry for begin, patterns, entry in RULES for rest in patterns}
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
