"""The legs of a check on the ranks of one world: the user's code as a stock Trainer runs it, several times."""

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
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
from lockstep.check.coupling import Coupling
from lockstep.check.layers import Layers
from lockstep.check.loaders import adapt
from lockstep.check.noise import FrozenNoise, GeneratorSpy
from lockstep.check.probe import CollectiveSpy, Probe
from lockstep.check.sketches import Trace, reading
from lockstep.check.source import look
from lockstep.launch.topology import RankContext
from lockstep.plan.schemas.target import KEY
from lockstep.plan.targets.frames import user_traceback
from lockstep.plan.targets.locate import create, locate, parameters_of
from lockstep.plan.world import World
from lockstep.strategies.parallel.sync_batchnorm import convert_batchnorm

QUIET: dict[str, Any] = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
VAL_BATCHES = 10


Results = dict[str, list[Trace]]
"""The traces of all ranks by leg; one with an `error` in place of steps has failed."""


@dataclass(frozen=True)
class Subject:
    """What is trained: calls of the module and the data, the global batch size, and the batches of each epoch.

    layers_at: the step of which layers are noted. repeats: the arguments of `fit` with which it is made again.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    batch_size: int
    batches: int = 10
    seed: int = 0
    precision: str = "64-true"
    sync_batchnorm: bool = False
    layers_at: int | None = None
    repeats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Legs:
    """The input of the ranks. folder: for checkpoints, which all ranks see."""

    world: World
    subject: Subject
    folder: str


def run(work: Legs, context: RankContext) -> Results:
    """Run all legs; return on every rank the traces of all ranks."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return legs_of(work.subject, Path(work.folder))


def legs_of(subject: Subject, folder: Path, number: int = 0, without: Sequence[str] = ()) -> Results:
    """Return the traces of a subject in this world; with `layers_at` of its layers at this step alone.

    plain: as the user wrote it. straight: the same without what cannot be compared, and what all others repeat.
    number: of the subject, if several share the folder. without: legs that nobody asks for.
    """
    world, results = dist.get_world_size() if dist.is_initialized() else 1, Results()
    path, keys = folder / f"{number}_{world}.ckpt", dict[str, Any]()

    def leg(name: str, create: Callable[..., Any] = Probe, probes: Any = None, **options: Any) -> bool:
        if name in without:
            return False
        try:
            trace = fit(subject, world, create, probes or {}, **{**keys, **options})
        except Exception as error:  # of the user's code
            reason = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
            trace = {"error": reason, "traceback": user_traceback(error)}
        results[name] = all_gather_json(trace)
        return all("error" not in each for each in results[name])

    if subject.layers_at is not None:
        keys |= subject.repeats
        leg("layers", Layers, {"step": subject.layers_at}, validates=False)
    elif leg("plain", again=world == 1, reads=True):
        facts = results["plain"][0]["facts"]
        draws = facts["varies"] or any(step["drew"] for trace in results["plain"] for step in trace["steps"])
        keys |= {"calm": True} if draws else {}
        keys |= {"aligns": True} if facts["batch"] not in (None, subject.batch_size // world) else {}
        results["straight"] = results["plain"]
        if keys and not leg("straight", again=world == 1, reads=True):
            keys, results["straight"] = {}, results["plain"]
        for trace in results["straight"]:
            trace["facts"]["repeats"] = keys
        is_replaced = facts["order"] == "sequential" and facts["sampler"] != facts["sampler_given"]
        if not keys.get("aligns") and (facts["order"] in ("own", "drawn") or is_replaced):
            leg("aligned", aligns=True)
        if leg("half", probes={"stops": True, "save": path}):
            leg("resumed", resume=path)
        if world == 1:
            model, data, _ = created(subject, subject.batch_size, 0)
            results["source"] = [{"findings": [asdict(finding) for finding in look(model, data)]}]
            leg("moved", probes={"moves": True})
            leg("coupling", Coupling)
            leg("accumulated", accumulate=2)
            leg("workers", workers=2, calm=False, aligns=False)
            if results["straight"][0]["validations"]:
                leg("unvalidated", validates=False, calm=False, aligns=False)
    return results


def fit(
    subject: Subject,
    world: int,
    create_probe: Callable[..., Any],
    probes: dict[str, Any],
    accumulate: int = 1,
    workers: int = 0,
    validates: bool = True,
    again: bool = False,
    resume: Path | None = None,
    aligns: bool = False,
    calm: bool = False,
    reads: bool = False,
    distributes: bool = True,
    finds_unused: bool = False,
) -> Trace:
    """Train on global batches for two epochs, unless the probe stops it; return the trace of this rank.

    probes: arguments of the probe. aligns, calm: see `adapted`; what a calm step draws is the same for all samples.
    """
    keys = dict(locals())
    size = subject.batch_size // world // accumulate
    model, data, owner = created(subject, size, workers)
    probe = create_probe(**probes, noise=FrozenNoise() if calm else GeneratorSpy(), seed=subject.seed)
    facts = probe.trace["facts"]
    adapt(owner, subject.seed, size, world, workers, facts, aligns, calm)
    torch.manual_seed(subject.seed)
    options: dict[str, Any] = {
        **{"precision": subject.precision, "devices": world, "accumulate_grad_batches": accumulate},
        **{"max_epochs": 2, "limit_train_batches": subject.batches * accumulate, "num_sanity_val_steps": 0},
        **{"limit_val_batches": VAL_BATCHES * accumulate if validates else 0, "use_distributed_sampler": distributes},
    }
    if world > 1:
        group: dict[str, Any] = {"cluster_environment": LightningEnvironment(), "process_group_backend": "gloo"}
        options["strategy"] = DDPStrategy(**group, find_unused_parameters=finds_unused)
    trainer = Trainer(accelerator="cpu", callbacks=[probe], logger=DummyLogger(), **options, **QUIET)
    try:
        with CollectiveSpy(probe.calls):
            trainer.fit(model, data, ckpt_path=resume)
            seen = len(probe.trace["validations"])
            read = {"reading": reading(trainer.train_dataloader)} if reads else {}
            for _ in range(2 if again and seen else 0):
                trainer.validate(model, data, verbose=False)
    except (TypeError, RuntimeError) as error:
        probe.freeze(False)
        if "sampler" in str(error) and distributes:  # Lightning cannot divide a batch sampler, which divides itself
            return fit(**{**keys, "distributes": False})
        if "find_unused_parameters" in str(error) and not finds_unused:
            return fit(**{**keys, "finds_unused": True})
        raise
    finally:
        probe.freeze(False)
    validations = probe.trace["validations"]
    return {**probe.trace, **read, "validations": validations[:seen], "again": validations[seen:]}


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
