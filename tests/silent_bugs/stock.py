"""Run cases by a stock lightning.Trainer, or as the script that they are, and say what parts. It knows no cause."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from tests.silent_bugs.base import rank_and_world
from tests.silent_bugs.cases import Case, load

Parted = dict[str, int]
"""Quantities that part, with the first step (of a validation, its number) where they do."""


@dataclass
class Trace:
    """What one rank did: an item for each optimizer step; parameters and buffers have one more, after the last."""

    samples: list[list[float]] = field(default_factory=list)
    parameters: list[Tensor] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    gradient: list[Tensor] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    random: list[bytes] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)

    def after(self, step: int) -> "Trace":
        """Return the rest of a run that goes on after `step`; it has one validation less."""
        rest = {name: values[step:] for name, values in vars(self).items() if name != "validation"}
        return Trace(**rest, validation=self.validation[1:])


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors] or [torch.zeros(0)]).clone()


def contents(batch: Any) -> list[float]:
    """Return a number for each sample, which tells its content."""
    return [round(value, 6) for value in batch[0].double().matmul(torch.tensor([1.0, 2, 3, 5]).double()).tolist()]


class Probe(Callback):
    """Notes each optimizer step of this rank in a trace."""

    def __init__(self) -> None:
        self.trace, self.loss = Trace(), 0.0
        self.samples: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.samples += contents(batch)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        generator = getattr(module, "generator", getattr(data, "generator", torch.default_generator))
        self.random = generator.get_state().numpy().tobytes()

    def on_before_backward(self, trainer: Trainer, module: LightningModule, loss: Tensor) -> None:
        self.loss += float(loss)

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Any) -> None:
        trace = self.trace
        trace.samples.append(sorted(self.samples))
        trace.loss.append(self.loss)
        trace.gradient.append(flat(p.grad for p in module.parameters() if p.grad is not None))
        trace.rate.append(optimizer.param_groups[0]["lr"])
        trace.random.append(self.random)
        self.note_state(module)
        self.samples, self.loss = [], 0.0

    def note_state(self, module: LightningModule) -> None:
        self.trace.parameters.append(flat(module.parameters()))
        self.trace.buffers.append(flat(module.buffers()))

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.note_state(module)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if "val_loss" in trainer.callback_metrics:
            self.trace.validation.append(float(trainer.callback_metrics["val_loss"]))


def fit(
    case: Case, correct: bool, accumulate: int = 1, workers: int = 0, resume: Path | None = None, **keys: Any
) -> Any:
    """Train on the ranks of the process group, or alone, on global batches of 8; return the trace and the Trainer."""
    world = rank_and_world()[1]
    torch.manual_seed(0)
    random.seed(0)
    model, data = load(case, correct, batch_size=8 // world // accumulate, num_workers=workers)
    probe = Probe()
    environment = {"strategy": DDPStrategy(cluster_environment=LightningEnvironment(), process_group_backend="gloo")}
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(
        accelerator="cpu",
        devices=world,
        precision="64-true",
        num_sanity_val_steps=0,
        accumulate_grad_batches=accumulate,
        callbacks=[probe],
        **{"max_epochs": 2} | (environment if world > 1 else {}) | quiet | case.trainer | keys,
    )
    model.double()  # Lightning 2.6.6 restores weights before it makes them float64: they would be rounded
    trainer.fit(model, data, ckpt_path=resume)
    return probe.trace, trainer


def run_script(steps: Iterator[Any]) -> Trace:
    trace = Trace()
    for step in steps:
        trace.samples.append(sorted(contents([step.inputs])))
        trace.loss.append(float(step.loss))
        trace.gradient.append(flat(p.grad for p in step.net.parameters()))
        trace.parameters.append(flat(step.net.parameters()))
    return trace


def traced(case: Case, correct: bool, **keys: Any) -> Trace:
    """Return the trace of this rank."""
    if case.kind == "script":
        return run_script(load(case, correct))
    trace: Trace = fit(case, correct, **keys)[0]
    return trace


def resumed(case: Case, correct: bool, folder: Path) -> tuple[Trace, Trace]:
    """Return the second epoch of an uninterrupted run, and of one that was saved and resumed after the first."""
    straight, _ = fit(case, correct)
    first, trainer = fit(case, correct, max_epochs=1)
    path = folder / f"{case.name}_{correct}_{rank_and_world()[1]}.ckpt"
    trainer.save_checkpoint(path)
    rest, _ = fit(case, correct, resume=path)
    return straight.after(len(first.loss)), rest


def close(value: Any, other: Any, tolerance: float) -> bool:
    one, two = (torch.as_tensor(each, dtype=torch.float64) for each in (value, other))
    return one.shape == two.shape and torch.allclose(one, two, rtol=tolerance, atol=tolerance)


def apart(one: Trace, other: Trace) -> Parted:
    """Return where two traces differ, except in their generators. Metrics of validations are float32."""
    parted = {}
    for name in ("parameters", "samples", "loss", "gradient", "buffers", "rate", "validation"):
        tolerance = 1e-6 if name == "validation" else 1e-9
        values, others = getattr(one, name), getattr(other, name)
        steps = range(max(len(values), len(others)))
        ended = min(len(values), len(others))
        step = next((k for k in steps if k >= ended or not close(values[k], others[k], tolerance)), None)
        if step is not None:
            parted[name] = step
    return parted


def earliest(*places: Parted) -> Parted:
    """Return all quantities that part, each with its first step."""
    names = {name for parted in places for name in parted}
    return {name: min(parted[name] for parted in places if name in parted) for name in names}


def ranks_apart(single: Trace, ranks: list[Trace]) -> Parted:
    """Return where the ranks differ from one process, or from each other."""
    first, *others = ranks
    together = Trace(**vars(first))
    together.samples = [sorted(chain(*parts)) for parts in zip(*(rank.samples for rank in ranks), strict=False)]
    together.loss = [sum(parts) / len(ranks) for parts in zip(*(rank.loss for rank in ranks), strict=False)]
    shared = [Trace(**{**vars(rank), "samples": first.samples, "loss": first.loss}) for rank in others]
    return earliest(apart(single, together), *(apart(first, rank) for rank in shared))


def generators_alike(ranks: list[Trace]) -> Parted:
    """Return the first step at which two ranks have the same random state."""
    steps = [k for k, states in enumerate(zip(*(rank.random for rank in ranks), strict=True)) if len({*states}) == 1]
    return {"random": steps[0]} if steps else {}


def repeated(trace: Trace) -> Parted:
    """Return the first step with a sample that came before."""
    seen: set[float] = set()
    for step, samples in enumerate(trace.samples):
        if seen & {*samples} or len({*samples}) < len(samples):
            return {"samples": step}
        seen |= {*samples}
    return {}


def in_one_process(case: Case, correct: bool, folder: Path) -> Parted:
    """Return what parts in a layout of one process."""
    if case.layout == "accumulation":
        return apart(traced(case, correct), traced(case, correct, accumulate=2))
    if case.layout == "resume":
        return apart(*resumed(case, correct, folder))
    if case.layout == "workers":
        return repeated(traced(case, correct, workers=2, max_epochs=1))
    if case.layout == "workers, epochs":
        return repeated(traced(case, correct, workers=2))
    if case.layout == "validation":
        parted = apart(traced(case, correct), traced(case, correct, limit_val_batches=0))
        return {name: step for name, step in parted.items() if name != "validation"}
    trace = traced(case, correct)
    half = len(trace.samples) // 2
    return {"samples": half} if trace.samples[:half] == trace.samples[half:] else {}
