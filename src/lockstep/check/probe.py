"""What one rank does at each optimizer step of a stock Trainer, as plain values that are compared afterwards."""

import pickle
import random
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from lockstep.base.private_api.torch import BATCHNORM, has_hooks
from lockstep.base.random_state import seed_all
from lockstep.base.structures import map_tensors, tensors_in
from lockstep.plan.targets.kinds import replace_method

Sketches = dict[str, list[float]]
"""The norm and a projection of each tensor, by its name: they part if the tensors do."""
Trace = dict[str, Any]
"""steps: a mapping for each optimizer step. end: the state afterwards. validations. facts: of the module."""

COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "reduce_scatter_tensor")


def digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def sketch(tensors: Iterable[tuple[str, Tensor | None]]) -> Sketches:
    """Return the sketches of the tensors that are there."""
    sketches = {}
    for name, tensor in tensors:
        if tensor is not None:
            values = tensor.detach().double().flatten()
            sketches[name] = [float(values.norm()), float(values @ direction(len(values)))]
    return sketches


@lru_cache(256)
def direction(size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64).mul_(0.7).cos_()


def batch_size_of(batch: Any) -> int:
    """Return the number of samples: the first dimension of the first tensor, 0 if there is none."""
    return next((len(leaf) for leaf in tensors_in(batch) if leaf.dim()), 0)


def sample_hashes(batch: Any) -> list[str]:
    """Return a hash of each sample's content; of the batch, if its tensors have no common first dimension."""
    size = batch_size_of(batch)
    tensors = [leaf for leaf in tensors_in(batch) if leaf.dim()]
    if not size or any(len(tensor) != size for tensor in tensors):
        return [digest(pickle.dumps(map_tensors(Tensor.tolist, batch)))]
    arrays = [tensor.detach().cpu().reshape(size, -1).float().numpy() for tensor in tensors]
    return [digest(b"".join(without_padding(array[row]) for array in arrays)) for row in range(size)]


def without_padding(row: Any) -> bytes:
    """Return the bytes of a row without 0 and -100 at its end: as many as the longest sample of the batch needs."""
    others = np.flatnonzero((row != 0) & (row != -100))
    content: bytes = row[: others[-1] + 1 if len(others) else 0].tobytes()
    return content


def attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what lies in plain attributes of a module and its submodules, by its name."""
    for prefix, part in module.named_modules():
        yield from ((f"{prefix}.{name}".lstrip("."), value) for name, value in vars(part).items())


def hidden_state(module: nn.Module) -> Sketches:
    """Return sketches of the tensors and numbers in plain attributes, which no state_dict has."""
    numbers = {name: value for name, value in attributes(module) if isinstance(value, Tensor | float)}
    return sketch((name, torch.as_tensor(value)) for name, value in numbers.items())


def generators(module: nn.Module) -> dict[str, str]:
    """Return hashes of the states of all generators that the module may draw from."""
    named = {name: value for name, value in attributes(module) if isinstance(value, torch.Generator)}
    states = {name: value.get_state().numpy().tobytes() for name, value in named.items()}
    states |= {"torch": torch.get_rng_state().numpy().tobytes(), "random": repr(random.getstate()).encode()}
    states["numpy"] = pickle.dumps(np.random.get_state())
    return {name: digest(state) for name, state in states.items()}


def optimizer_state(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    for number, optimizer in enumerate(trainer.optimizers):
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        for place, parameter in enumerate(parameters):
            for name, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    yield f"{number}.{place}.{name}", value


class Probe(Callback):
    """Notes each step in `trace`. It comes before the module's hooks.

    seed: of the generators of all ranks; where the module leaves them alone, each rank gets another before training.
    moves: move the inputs (without floats among them, the weights) by one unit in the last place.
    stops: end training after the first epoch.
    """

    def __init__(self, seed: int, moves: bool = False, stops: bool = False) -> None:
        self.trace: Trace = {"steps": [], "validations": [], "facts": {}, "end": {}}
        self.seed, self.moves, self.stops = seed, moves, stops
        self.step: dict[str, Any] = {}
        self.calls: list[str] = []
        self.known, self.names = set[str](), set[str]()
        self.generators: dict[str, str] = {}

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        if torch.initial_seed() == self.seed:
            seed_all(self.seed + 1 + trainer.global_rank)
        self.trace["facts"] |= {
            "manual": not module.automatic_optimization,
            "frozen": [name for name, parameter in module.named_parameters() if not parameter.requires_grad],
        }
        replace_method(module, "log", self.note_logged)

    def note_logged(self, log: Any, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Note what an evaluation logs, and with which weight."""
        if self.validation is not None and not isinstance(value, nn.Module | Mapping):
            size = options["batch_size"] if options.get("batch_size") is not None else self.validation["size"]
            self.validation["logged"].append([name, float(value), size])
        log(name, value, *arguments, **options)

    validation: dict[str, Any] | None = None

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.begin(trainer, module)
        self.step["samples"] += sample_hashes(batch)
        self.step["sizes"].append(batch_size_of(batch))
        if self.moves:
            move(tensors_in(batch), module)
        self.generators = generators(module)
        self.step["random"] = self.generators
        self.calls.clear()

    def begin(self, trainer: Trainer, module: LightningModule) -> None:
        """Begin a step, unless it has begun."""
        if not self.step:
            self.step = {
                "samples": [],
                "loss": 0.0,
                "backwards": 0,
                "sizes": [],
                "random": self.generators,
                "calls": [],
            }
            self.step |= self.state(trainer, module) | {"hidden": hidden_state(module), "epoch": trainer.current_epoch}

    def on_before_backward(self, trainer: Trainer, module: LightningModule, loss: Tensor) -> None:
        self.begin(trainer, module)
        self.step["loss"] += float(loss.detach())
        self.step["backwards"] += 1
        self.step["calls"] += [call for call in self.calls if call not in self.step["calls"]]

    def on_after_backward(self, trainer: Trainer, module: LightningModule) -> None:
        self.step["reduced"] = sketch((name, parameter.grad) for name, parameter in module.named_parameters())

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Any) -> None:
        self.begin(trainer, module)
        step, named = self.step, [*module.named_parameters()]
        stepped = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        step["gradient"] = sketch((name, parameter.grad) for name, parameter in named if parameter in stepped)
        step["rate"] = [group["lr"] for each in trainer.optimizers for group in each.param_groups]
        now = generators(module)
        step["drew"] = [name for name, state in self.generators.items() if now.get(name) != state]
        step["hooked"] = any(has_hooks(parameter) for _, parameter in named)
        step["unfrozen"] = [
            name for name, each in named if each.requires_grad and name in self.trace["facts"]["frozen"]
        ]
        step["unregistered"] = bool(stepped - {parameter for _, parameter in named})
        self.trace["steps"].append(step)
        self.step = {}

    def state(self, trainer: Trainer, module: LightningModule) -> dict[str, Sketches]:
        trainable = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        self.trace["facts"]["trainable"] = sorted(trainable | {*self.trace["facts"].get("trainable", ())})
        return {
            "parameters": sketch(module.named_parameters()),
            "buffers": sketch(module.named_buffers()),
            "optimizer": sketch(optimizer_state(trainer)),
        }

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.trace["facts"]["sampler"] = type(getattr(trainer.train_dataloader, "sampler", None)).__name__
        norms = [name for name, part in module.named_modules() if isinstance(part, BATCHNORM)]
        self.trace["facts"]["norms"] = norms

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        trainer.should_stop = self.stops or trainer.should_stop

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.trace["end"] = self.state(trainer, module)

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        if not self.trace["validations"]:
            self.known = {*trainer.callback_metrics}
        self.validation = {"samples": [], "logged": [], "size": 0, "random": generators(module)}

    def on_validation_batch_start(
        self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.validation is not None:
            self.validation["samples"] += sample_hashes(batch)
            self.validation["size"] = batch_size_of(batch)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self.validation is not None:
            if not self.trace["validations"]:  # later ones also have what epochs of training have logged
                self.names = {*trainer.callback_metrics} - self.known
            values = {name: float(value) for name, value in trainer.callback_metrics.items() if name in self.names}
            drew = [name for name, state in generators(module).items() if self.validation["random"].get(name) != state]
            self.trace["validations"].append({**self.validation, "values": values, "drew": drew})
        self.validation = None


def move(leaves: list[Tensor], module: LightningModule) -> None:
    """Move floats by one unit in the last place; the weights instead if no input is a float."""
    floats = [leaf for leaf in leaves if leaf.is_floating_point()]
    with torch.no_grad():
        for tensor in floats or module.parameters():
            tensor.copy_(torch.nextafter(tensor, torch.full_like(tensor, torch.inf)))


class CollectiveSpy:
    """Notes which functions of torch.distributed are called within the block, in `calls`."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def __enter__(self) -> None:
        self.originals = {name: getattr(dist, name) for name in COLLECTIVES}
        for name, original in self.originals.items():
            setattr(dist, name, self.noting(name, original))

    def __exit__(self, *_: object) -> None:
        for name, original in self.originals.items():
            setattr(dist, name, original)

    def noting(self, name: str, original: Any) -> Any:
        def noted(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            return original(*arguments, **options)

        return noted
