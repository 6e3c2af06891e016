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
    clip = plan.gradient_clip_val
    if clip is not None and clip <= 0:
        instead = "gradient_clip_val=1.0, say, or null for none"
        raise config_error("gradient_clip_val", clip, "it must be above 0", instead)
    if plan.precision == "16-mixed" and plan.accelerator == "cpu":
        instead = "precision=bf16-mixed, or accelerator=gpu"
        raise config_error("precision", plan.precision, "it needs a GPU", instead)


def _check_batches(plan: "Plan") -> None:
    theirs = isinstance(plan.data, schemas.Loaders)  # ranks may have unequal shares, or none
    if theirs and not plan.data.regular:  # type: ignore[union-attr]
        return
    world, samples = plan.world_size * plan.strategy.layout(plan.devices).virtual_ranks, plan.data.train_samples
    if plan.batch_size < world and not theirs:
        why = f"batch_size={plan.batch_size} is less than a sample for each of {world} ranks"
        nodes = f" with num_nodes={plan.num_nodes}" if plan.num_nodes > 1 else ""
        most = plan.batch_size // plan.num_nodes or 1
        instead = f"devices={most} or fewer{nodes}, or batch_size={world}"
        raise config_error("devices", plan.devices, why, instead)
    if (spare := plan.batch_size % world) and not theirs:
        below, above = plan.batch_size - spare, plan.batch_size - spare + world
        why = f"{world} ranks (devices={plan.devices}) cannot share it equally"
        raise config_error("batch_size", plan.batch_size, why, f"batch_size={below} or batch_size={above}")
    if plan.drop_last and plan.batch_size > samples:
        why = f"batch_size={plan.batch_size} is more than the {samples} samples, so every batch would be dropped"
        raise config_error(
            "drop_last", True, why, f"drop_last=false, or batch_size={world * (samples // world) or world}"
        )


def _check_length(plan: "Plan") -> None:
    """Refuse for a plain net what needs to know how long an epoch is, or how large each batch."""
    if plan.model.lightning or not isinstance(plan.data, schemas.Loaders):
        return
    counts = isinstance(plan.scheduler, schemas.OneCycle | schemas.WarmupLinear)
    if counts and not plan.steps.total_steps:
        why = f"its curve is of the whole run, and data={plan.data.name} does not say how long an epoch is"
        raise config_error("scheduler", plan.scheduler.name, why, "scheduler=none, or one by _target_")
    if plan.dropout_rng != "per_rank":
        why = f"data={plan.data.name} does not say how large each batch is"
        raise config_error("dropout_rng", plan.dropout_rng, why, "dropout_rng=per_rank")


def _check_work(plan: "Plan") -> None:
    if not plan.train and not plan.test:
        raise config_error("test", False, "with train=false nothing is left to do", "train=true or test=true")
    if plan.resume and not plan.train:
        raise config_error("resume", True, "with train=false there is no training to go on with", "resume=false")
    if plan.resume and plan.engine.name == "both":
        why = "engine=both is two runs, each in a folder of its own"
        raise config_error("resume", True, why, "resume=false, or engine=raw hydra.run.dir=…/raw for one of them")
    if not plan.train and plan.ckpt_path is None:
        why = "with train=false there is no trained net to test"
        raise config_error("ckpt_path", None, why, "ckpt_path=logs/…/checkpoints/best.ckpt, or train=true")
    if plan.loss_reduction != "mean" and not plan.model.lightning:
        why = "the loss of a plain net is its task's"
        raise config_error("loss_reduction", plan.loss_reduction, why, "loss_reduction=mean")
    if plan.model_summary and not plan.train:
        why = "it is printed before training, and there is none"
        raise config_error("model_summary", True, why, "model_summary=false, or train=true")
    if isinstance(plan.data, schemas.ModelLoaders) and not plan.model.lightning:
        why = "it takes the loaders that a LightningModule has itself, and a plain net has none"
        raise config_error("data", plan.data.name, why, "data=… of a data set, or model=… of a LightningModule")
    if plan.optimized_metric is not None and not plan.model.lightning:
        known = plan.optimized_metric in plan.measured
        why = "this run measures no such thing"
        require(known, "optimized_metric", plan.optimized_metric, why, f"one of {', '.join(plan.measured)}")
