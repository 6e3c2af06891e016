"""What cannot be, of a plan as a whole: refused in one sentence that names the key and what to write instead."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep import schemas
from lockstep.config_error import config_error, require

if TYPE_CHECKING:
    from lockstep.plan import Plan


def check(plan: "Plan") -> None:
    """The plan's own numbers first, then what each part of it says, then whether there is any work.

    Raises:
        ConfigError: names the key.
    """
    _check_numbers(plan)
    plan.strategy.check(plan)
    _check_batches(plan)
    _check_length(plan)
    parts = (plan.model, plan.task, plan.scheduler, *plan.logger, *plan.callbacks, plan.checkpoint, plan.trainer)
    for part in parts:
        part.check(plan)
    _check_work(plan)


def require_inside(name: object) -> None:
    """Refuse a run's name that would lead out of logs/."""
    path = Path(str(name))
    inside = name != "" and not path.is_absolute() and ".." not in path.parts
    require(inside, "name", name, "the run's folder is logs/<name>/…", "name=train, say")
    short = all(len(os.fsencode(part)) <= 255 for part in path.parts) and len(os.fsencode(path)) <= 1024
    require(short, "name", name, "a folder's name has 255 bytes at the most, a path 1024", "name=train, say")


def _check_numbers(plan: "Plan") -> None:
    require_inside(plan.name)
    counts = ("devices", "num_nodes", "max_epochs", "batch_size", "threads")
    for key in (*counts, "accumulate_grad_batches", "log_every_n_steps"):
        value = getattr(plan, key)
        require(value >= 1, key, value, "it must be 1 or more", f"{key}=1")
        require(value < 2**31, key, value, "it must be below 2^31", f"{key}=1, say")
    require(0 <= plan.seed < 2**63, "seed", plan.seed, "it must be at least 0 and below 2^63", "seed=42")
    clip, hint = plan.gradient_clip_val, "gradient_clip_val=1.0, say, or null for none"
    require(clip is None or clip > 0, "gradient_clip_val", clip, "it must be above 0", hint)
    runs = plan.precision != "16-mixed" or plan.accelerator != "cpu"
    require(runs, "precision", plan.precision, "it needs a GPU", "precision=bf16-mixed, or accelerator=gpu")


def _check_batches(plan: "Plan") -> None:
    theirs = isinstance(plan.data, schemas.Loaders)  # ranks may have unequal shares, or none
    if theirs and not plan.data.regular:  # type: ignore[union-attr]
        return
    world, samples = plan.world_size * plan.strategy.layout(plan.devices).virtual_ranks, plan.data.train_samples
    if plan.batch_size < world and not theirs:
        reason = f"batch_size={plan.batch_size} is less than a sample for each of {world} ranks"
        nodes = f" with num_nodes={plan.num_nodes}" if plan.num_nodes > 1 else ""
        most = plan.batch_size // plan.num_nodes or 1
        hint = f"devices={most} or fewer{nodes}, or batch_size={world}"
        raise config_error("devices", plan.devices, reason, hint)
    if (spare := plan.batch_size % world) and not theirs:
        below, above = plan.batch_size - spare, plan.batch_size - spare + world
        reason = f"{world} ranks (devices={plan.devices}) cannot share it equally"
        raise config_error("batch_size", plan.batch_size, reason, f"batch_size={below} or batch_size={above}")
    reason = f"batch_size={plan.batch_size} is more than the {samples} samples, so every batch would be dropped"
    hint = f"drop_last=false, or batch_size={world * (samples // world) or world}"
    require(not plan.drop_last or plan.batch_size <= samples, "drop_last", True, reason, hint)


def _check_length(plan: "Plan") -> None:
    """Refuse for a plain net what needs to know how long an epoch is, or how large each batch."""
    if plan.model.lightning or not isinstance(plan.data, schemas.Loaders):
        return
    counts = isinstance(plan.scheduler, schemas.OneCycle | schemas.WarmupLinear)
    known = not counts or plan.steps.total_steps > 0
    reason = f"its curve is of the whole run, and data={plan.data.name} does not say how long an epoch is"
    require(known, "scheduler", plan.scheduler.name, reason, "scheduler=none, or one by _target_")
    reason = f"data={plan.data.name} does not say how large each batch is"
    require(plan.dropout_rng == "per_rank", "dropout_rng", plan.dropout_rng, reason, "dropout_rng=per_rank")


def _check_work(plan: "Plan") -> None:
    """Refuse a run without work, and keys that ask for what the run has not."""
    trains, plain = plan.train, not plan.model.lightning
    require(trains or plan.test, "test", False, "with train=false nothing is left to do", "train=true or test=true")
    reason = "with train=false there is no training to go on with"
    require(trains or not plan.resume, "resume", True, reason, "resume=false")
    single, reason = plan.engine.name != "both", "engine=both is two runs, each in a folder of its own"
    hint = "resume=false, or engine=raw hydra.run.dir=…/raw for one of them"
    require(single or not plan.resume, "resume", True, reason, hint)
    reason, hint = "with train=false there is no trained net to test", "ckpt_path=logs/…/checkpoints/best.ckpt"
    require(trains or plan.ckpt_path is not None, "ckpt_path", None, reason, f"{hint}, or train=true")
    reason = "the loss of a plain net is its task's"
    fits = plan.loss_reduction == "mean" or not plain
    require(fits, "loss_reduction", plan.loss_reduction, reason, "loss_reduction=mean")
    reason = "it is printed before training, and there is none"
    require(trains or not plan.model_summary, "model_summary", True, reason, "model_summary=false, or train=true")
    fits = not plain or not isinstance(plan.data, schemas.ModelLoaders)
    reason = "it takes the loaders that a LightningModule has itself, and a plain net has none"
    require(fits, "data", plan.data.name, reason, "data=… of a data set, or model=… of a LightningModule")
    if plain and plan.optimized_metric is not None:
        known, reason = plan.optimized_metric in plan.measured, "this run measures no such thing"
        require(known, "optimized_metric", plan.optimized_metric, reason, f"one of {', '.join(plan.measured)}")
