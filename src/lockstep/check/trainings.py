"""The trainings of a check on the ranks of one world: the user's code as a stock Trainer runs it, several times."""

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.strategies import DDPStrategy

from lockstep.base.config_error import shorten
from lockstep.base.messages import all_gather_json
from lockstep.base.random_state import seed_all
from lockstep.check.comparison import VAL_BATCHES, Results, Subject, Trace
from lockstep.check.loaders import adapt
from lockstep.check.loss import LossProbe
from lockstep.check.noise import Noise
from lockstep.check.probe import Probe, TooSlowError, noted_collectives
from lockstep.check.sketches import reading
from lockstep.check.source import look
from lockstep.launch.topology import RankContext
from lockstep.plan.schemas.target import KEY
from lockstep.plan.targets.frames import user_traceback
from lockstep.plan.targets.locate import create, locate, parameters_of
from lockstep.strategies.parallel.sync_batchnorm import convert_batchnorm

INTERVENTIONS = {
    "accumulated": "it does not train by accumulated batches",
    "unvalidated": "it does not train without validation",
}
"""Trainings that differ from the user's, and what their failure says."""
OPTIONS: dict[str, Any] = {"accelerator": "cpu", "max_epochs": 2, "num_sanity_val_steps": 0}
OPTIONS |= dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


def run(subject: Subject, context: RankContext) -> Results:
    """Run all trainings; return on every rank the traces of all ranks."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    assert subject.world is not None
    return traces_of(subject, Path(subject.world.folder))


def traces_of(subject: Subject, folder: Path, number: int = 0, without: Sequence[str] = ()) -> Results:
    """Return the traces of a subject's trainings in this world, by their names.

    plain: as the user wrote it. straight: the same without what cannot be compared, and what all others repeat.
    number: of the subject, if several share the folder. without: trainings that nobody asks for.
    """
    world, results = dist.get_world_size() if dist.is_initialized() else 1, Results()
    path, keys = folder / f"{number}_{world}.ckpt", dict[str, Any]()

    def train(name: str, create_probe: Callable[..., Probe] = Probe, **options: Any) -> bool:
        if name in without:
            return False
        try:
            trace = fit(subject, world, create_probe, **{**keys, **options})
        except TooSlowError as error:
            trace = {"error": "too slow", "share": error.args[0]}
        except Exception as error:  # of the user's code
            reason = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
            trace = {"error": reason, "traceback": user_traceback(error)}
            if name in INTERVENTIONS:  # no error of the user's
                trace = {"error": "", "reason": INTERVENTIONS[name]}
        results[name] = all_gather_json(trace)
        return all("error" not in each for each in results[name])

    limit = subject.budget / subject.batches / 2 if world == 1 else math.inf
    if not train("plain", partial(Probe, limit=limit), again=True):
        return results
    facts = results["plain"][0]["facts"]
    if facts["varies"] or any(step["drew"] for trace in results["plain"] for step in trace["steps"]):
        keys["calm"] = True
    is_replaced = facts["order"] == "sequential" and facts["sampler"] != facts["sampler_given"]
    is_divided = facts["batch"] not in (None, subject.batch_size // world)
    if is_divided or is_replaced or facts["order"] in ("own", "drawn"):
        keys["aligns"] = True
    results["straight"] = results["plain"]
    if keys and not train("straight", again=True):
        keys, results["straight"] = {}, results["plain"]
    if train("half", partial(Probe, save=path)):
        train("resumed", resume=path)
    if world == 1:
        model, data, _ = created(subject, subject.batch_size, 0)
        results["source"] = [{"findings": [asdict(finding) for finding in look(model, data)]}]
        train("moved", partial(Probe, moves=True))
        train("loss", LossProbe)
        train("accumulated", accumulate=2)
        train("workers", workers=2, calm=False, aligns=False)
        if results["straight"][0]["validations"]:
            train("unvalidated", validates=False, calm=False, aligns=False)
    return results


def fit(
    subject: Subject,
    world: int,
    create_probe: Callable[..., Probe],
    accumulate: int = 1,
    workers: int = 0,
    validates: bool = True,
    again: bool = False,
    resume: Path | None = None,
    aligns: bool = False,
    calm: bool = False,
    distributes: bool = True,
    finds_unused: bool = False,
) -> Trace:
    """Train on global batches for two epochs, unless the probe stops it; return the trace of this rank.

    again: afterwards read an epoch, and validate twice in one process. aligns, calm: see `adapted`; what a calm step
    draws is the same for all samples. distributes, finds_unused: the Trainer's use_distributed_sampler, and DDP's
    find_unused_parameters, changed for modules that fail with the defaults.
    """
    keys = dict(locals())
    size = subject.batch_size // world // accumulate
    model, data, owner = created(subject, size, workers)
    probe = create_probe(noise=Noise(freezes=calm), seed=subject.seed)
    facts = probe.trace["facts"]
    adapt(owner, subject.seed, size=size, world=world, workers=workers, facts=facts, aligns=aligns, calm=calm)
    torch.manual_seed(subject.seed)
    ddp = DDPStrategy(
        cluster_environment=LightningEnvironment(), process_group_backend="gloo", find_unused_parameters=finds_unused
    )
    trainer = Trainer(
        **OPTIONS,
        strategy=ddp if world > 1 else "auto",
        devices=world,
        precision=subject.precision,  # type: ignore[arg-type]
        callbacks=[probe],
        logger=DummyLogger(),
        limit_train_batches=subject.batches * accumulate,
        limit_val_batches=VAL_BATCHES * accumulate if validates else 0,
        accumulate_grad_batches=accumulate,
        use_distributed_sampler=distributes,
    )
    try:
        with noted_collectives(probe.calls):
            trainer.fit(model, data, ckpt_path=resume)
            seen = len(probe.trace["validations"])
            if again and not facts["varies"]:
                probe.trace["reading"] = reading(trainer.train_dataloader)
            for _ in range(2 if again and seen and world == 1 else 0):
                trainer.validate(model, data, verbose=False)
    except (TypeError, RuntimeError) as error:
        probe.watch(False)
        if "sampler" in str(error) and distributes:  # Lightning cannot divide a batch sampler, which divides itself
            return fit(**{**keys, "distributes": False})
        if "find_unused_parameters" in str(error) and not finds_unused:
            return fit(**{**keys, "finds_unused": True})
        raise
    finally:
        probe.watch(False)
    validations = probe.trace["validations"]
    return {**probe.trace, "validations": validations[:seen], "again": validations[seen:]}


def created(subject: Subject, size: int, workers: int) -> tuple[Any, Any, Any]:
    """Return the module, the data module or None, and the one with the loaders, which are told the batch size."""
    seed_all(subject.seed)
    model, data, call = create("model", subject.model), None, subject.data
    if call:
        known = parameters_of(locate(f"data.{KEY}", call[KEY]))
        wanted = {"batch_size": size, "num_workers": workers}
        data = create("data", {**call, **{name: value for name, value in wanted.items() if name in known}})
    owner = model if data is None else data
    for each in (owner, owner.hparams) if hasattr(owner, "batch_size") else ():
        with suppress(AttributeError):  # of a property
            each.batch_size = size
    if subject.sync_batchnorm:
        convert_batchnorm(model)  # torch's runs on GPUs alone
    if subject.precision == "64-true":
        model.double()  # Lightning restores weights before it makes them float64: they would be rounded
    return model, data, owner
