"""What one rank does at each optimizer step of a stock Trainer, as plain values that are compared afterwards."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from lockstep.base.private_api.torch import BATCHNORM, has_hooks
from lockstep.base.random_state import seed_all
from lockstep.base.structures import tensors_in
from lockstep.check.comparison import Sketches, Trace
from lockstep.check.noise import Noise
from lockstep.check.sketches import batch_size_of, generators, gradients, hidden_state, sample_hashes, sketch, sums
from lockstep.plan.targets.kinds import overrides, replace_method

COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "reduce_scatter_tensor", "reduce")
PASSING = "a generator that a call is passed"


class TooSlowError(Exception):
    """A batch takes too long; its argument is the share of that time that it may take."""


class Probe(Callback):
    """Notes each step in `trace`. It comes before the module's hooks.

    seed: of the generators of all ranks; where the module leaves them alone, each rank gets another before training.
    noise: what the steps draw, frozen or noted. moves: move the inputs (without floats among them, the weights) by one
    unit in the last place. save: the checkpoint to write after the first epoch, before the other hooks at the end of
    training, as a Trainer does. limit: CPU seconds that a batch may take.
    """

    def __init__(
        self, seed: int, noise: Noise, moves: bool = False, save: Path | None = None, limit: float = math.inf
    ) -> None:
        self.trace: Trace = {"steps": [], "validations": [], "facts": {}, "end": {}}
        self.seed, self.noise, self.moves, self.save = seed, noise, moves, save
        self.limit, self.clock = limit, 0.0
        self.step, self.validation = dict[str, Any](), dict[str, Any]()
        self.calls, self.known, self.names = list[str](), set[str](), set[str]()
        self.generators: dict[str, str] = {}
        self.batches, self.size, self.is_active = 0, 0, False

    def watch(self, is_active: bool) -> None:
        """Watch the noise of a step from its first hook on, or let it go after the step, or an error."""
        if is_active != self.is_active:
            self.is_active = is_active
            self.noise.restart()
            mode: Any = self.noise
            mode.__enter__() if is_active else mode.__exit__(None, None, None)

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        if torch.initial_seed() == self.seed:
            seed_all(self.seed + 1 + trainer.global_rank)
        self.trace["facts"]["frozen"] = [name for name, each in module.named_parameters() if not each.requires_grad]
        replace_method(module, "log", self.note_logged)
        for owner in (module, trainer.datamodule):  # type: ignore[attr-defined]
            if owner is not None and overrides(owner, "on_after_batch_transfer"):
                replace_method(owner, "on_after_batch_transfer", frozen)

    def note_logged(self, log: Any, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Note what an evaluation logs, and with which weight."""
        if self.validation and not isinstance(value, nn.Module | Mapping):
            size = options["batch_size"] if options.get("batch_size") is not None else self.validation["size"]
            self.validation["logged"].append([name, float(value), size])
        count = len(self.calls)
        log(name, value, *arguments, **options)
        del self.calls[count:]  # sync_dist

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.trace["facts"] |= {
            "sampler": type(getattr(trainer.train_dataloader, "sampler", None)).__name__,
            "norms": [name for name, part in module.named_modules() if isinstance(part, BATCHNORM)],
            "monitors": [each.monitor for each in trainer.lr_scheduler_configs if each.reduce_on_plateau],
        }
        for name, layer in module.named_modules():
            owns = next(layer.parameters(recurse=False), None) is not None or not [*layer.children()]
            if name and owns and not isinstance(layer, torch.jit.ScriptModule):
                layer.register_forward_hook(self.noting(name))

    def noting(self, name: str) -> Callable[..., None]:
        """Return a hook that notes sums over the samples of what a layer takes and returns, and of the gradient."""

        def note(phase: str, tensor: Tensor) -> None:
            with suppress(RuntimeError):  # of sparse tensors and the like
                if self.step and tensor.dim() and len(tensor) == self.size:
                    size, *values = sums(tensor)
                    _, *earlier = self.step[phase].get(name, [0.0, 0.0, 0.0])
                    self.step[phase][name] = [size, *map(sum, zip(values, earlier, strict=True))]

        def hook(_layer: Any, inputs: Any, outputs: Any) -> None:
            for phase, structure in (("inputs", inputs), ("outputs", outputs)) if self.is_active and self.step else ():
                for tensor in tensors_in(structure)[:1]:
                    note(phase, tensor)
                    if phase == "outputs" and tensor.requires_grad:
                        tensor.register_hook(partial(note, "backward"))  # type: ignore[no-untyped-call]

        return hook

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.step = {}  # batches that no step came after

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.batches, self.size = self.batches + 1, batch_size_of(batch)
        if self.batches == 3 and (seconds := time.process_time() - self.clock) > self.limit:
            raise TooSlowError(self.limit / seconds)
        self.clock = time.process_time()
        self.begin(trainer, module)
        self.step["samples"] += sample_hashes(batch)
        self.step["sizes"].append(self.size)
        if self.moves:
            move(tensors_in(batch), module)
        self.step["random"] = self.generators = generators(module, trainer)
        self.calls.clear()
        self.watch(True)

    def begin(self, trainer: Trainer, module: LightningModule) -> None:
        """Begin a step, unless it has begun."""
        if not self.step:
            self.noise.drew = False
            self.step = {"samples": [], "sizes": [], "calls": [], "loss": 0.0, "backwards": 0}
            self.step |= {"inputs": {}, "outputs": {}, "backward": {}, "epoch": trainer.current_epoch}
            self.step |= {"random": self.generators, "hidden": hidden_state(module), **self.state(trainer, module)}

    def on_before_backward(self, trainer: Trainer, module: LightningModule, loss: Tensor) -> None:
        self.begin(trainer, module)
        step = self.step
        if step["backwards"] and trainer.accumulate_grad_batches > 1:
            step["changed"] = step.get("changed") or step["reduced"] != gradients(module)
        step["loss"] += float(loss.detach())
        step["backwards"] += 1
        step["calls"] += [call for call in self.calls if call not in step["calls"]]

    def on_after_backward(self, trainer: Trainer, module: LightningModule) -> None:
        self.step["reduced"] = gradients(module)

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Any) -> None:
        self.begin(trainer, module)
        named = [*module.named_parameters()]
        stepped = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        frozen_before = self.trace["facts"]["frozen"]
        self.step |= {
            "gradient": sketch((name, parameter.grad) for name, parameter in named if parameter in stepped),
            "rate": [group["lr"] for each in trainer.optimizers for group in each.param_groups],
            "drew": drawn_since(self.generators, generators(module, trainer), self.noise),
            "hooked": any(has_hooks(parameter) for _, parameter in named),
            "unfrozen": [name for name, each in named if each.requires_grad and name in frozen_before],
            "unregistered": bool(stepped - {parameter for _, parameter in named}),
            "batch": self.batches,
        }
        self.trace["steps"].append(self.step)
        self.step = {}

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.watch(False)
        if self.trace["steps"] and self.trace["steps"][-1]["batch"] == self.batches:
            step = self.trace["steps"][-1]
            step["applied"] = {name: values for name, values in gradients(module).items() if name in step["gradient"]}

    def state(self, trainer: Trainer, module: LightningModule) -> dict[str, Sketches]:
        trainable = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        self.trace["facts"]["trainable"] = sorted(trainable | {*self.trace["facts"].get("trainable", ())})
        return {
            "parameters": sketch(module.named_parameters()),
            "buffers": sketch(module.named_buffers()),
            "optimizer": sketch(optimizer_state(trainer)),
        }

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        trainer.should_stop = self.save is not None or trainer.should_stop

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.trace["end"] = self.state(trainer, module)
        if self.save is not None:
            trainer.save_checkpoint(self.save)

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        if not self.trace["validations"]:
            self.known = {*trainer.callback_metrics}
        self.noise.drew = False
        self.validation = {"samples": [], "logged": [], "size": 0, "random": generators(module)}

    def on_validation_batch_start(
        self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.validation["samples"] += sample_hashes(batch)
        self.validation["size"] = batch_size_of(batch)
        self.watch(True)

    def on_validation_batch_end(self, *_: Any) -> None:
        self.validation["size"] = 0  # of what is logged after the last batch
        self.watch(False)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if not self.trace["validations"]:  # later ones also have what epochs of training have logged
            self.names = {*trainer.callback_metrics} - self.known
        values = {name: float(value) for name, value in trainer.callback_metrics.items() if name in self.names}
        drew = drawn_since(self.validation["random"], generators(module), self.noise)
        self.trace["validations"].append({**self.validation, "values": values, "drew": drew})
        self.validation = {}


def optimizer_state(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    for number, optimizer in enumerate(trainer.optimizers):
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        for place, parameter in enumerate(parameters):
            for name, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    yield f"{number}.{place}.{name}", value


def drawn_since(before: Mapping[str, str], now: Mapping[str, str], noise: Noise) -> list[str]:
    """Return the generators that are in another state than before."""
    return [name for name, state in before.items() if now.get(name) != state] + [PASSING] * noise.drew


def frozen(transfer: Any, *arguments: Any, **options: Any) -> Any:
    with Noise(freezes=True):
        return transfer(*arguments, **options)


def move(leaves: list[Tensor], module: LightningModule) -> None:
    """Move floats by one unit in the last place; the weights instead if no input is a float."""
    floats = [leaf for leaf in leaves if leaf.is_floating_point()]
    with torch.no_grad():
        for tensor in floats or module.parameters():
            tensor.copy_(torch.nextafter(tensor, torch.full_like(tensor, torch.inf)))


def noted_collectives(calls: list[str]) -> Any:
    """Note in `calls` which functions of torch.distributed are called within the block."""

    def noting(name: str, original: Any) -> Any:
        def noted(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return original(*arguments, **options)

        return noted

    return patch.multiple(dist, **{name: noting(name, getattr(dist, name)) for name in COLLECTIVES})
