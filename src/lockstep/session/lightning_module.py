"""A user's LightningModule: facts about it and its data, found before any rank starts; its first weights on a rank."""

import fcntl
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep import schemas
from lockstep.config_error import require
from lockstep.loaders.loader_facts import batch_facts, facts_of
from lockstep.loaders.loader_source import LoaderSource, create_source
from lockstep.memory.format import memory_format_of
from lockstep.parallel.net_proxy import NET, net_of
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype
from lockstep.random_state import seed_all, seeded
from lockstep.schemas.target import KEY
from lockstep.session.shapes import show_shapes
from lockstep.steps.module_step import ModuleStep
from lockstep.targets.kinds import is_lightning_module, overrides, replace_method
from lockstep.targets.locate import create, locate


def create_module(choice: schemas.UserLightningModule | schemas.UserModel, seed: int) -> Any:
    """Create what a user's target makes, its weights drawn before anything else: the same on every rank."""
    seed_all(seed)
    return create("model", choice.call)


def inspect_module(options: Mapping[str, Any]) -> tuple[schemas.Model, Any]:
    """Return the model and its LightningModule, or None if the target creates a plain net."""
    model = options["model"]
    module = create_module(model, options["seed"])
    if not is_lightning_module(module):
        return model, None
    key, path = f"model.{KEY}", model.call[KEY]
    trains, reason = overrides(module, "training_step"), "it has no training_step"
    require(trains, key, path, reason, "a LightningModule with one")
    return schemas.UserLightningModule(**vars(model), **_facts(module)), module


def _facts(module: Any) -> dict[str, Any]:
    """Return facts about a module for the plan; stages that do not hold all weights of the net are not all of it."""
    net = net_of(module)
    weights = dict(module.named_parameters(remove_duplicate=False)).items()
    can_shard = all(name.startswith(f"{NET}.") and weight.dim() and weight.is_contiguous() for name, weight in weights)
    stages = getattr(net, "stages", None)
    stages = [*stages] if isinstance(stages, Iterable) else []
    fits = net is not None and all(isinstance(stage, nn.Module) for stage in stages)
    if net is not None and fits:
        fits = {*nn.ModuleList(stages).parameters()} == {*net.parameters()}
    return {
        "manual": not module.automatic_optimization,
        "has_net": net is not None,
        "can_shard_net": net is not None and can_shard,
        "stages": len(stages) if fits else 0,
    }


def inspect_loaders(options: dict[str, Any], module: Any) -> None:
    """Add facts about the loaders of a LightningModule or of a plain net."""
    data = options["data"]
    if module is None and isinstance(data, schemas.ModelLoaders):
        return  # the plan refuses it
    names = ("max_epochs", "accumulate_grad_batches", "gradient_clip_val", "precision", "log_every_n_steps")
    trainer = {name: options[name] for name in names} | {"max_steps": options["trainer"].max_steps}
    with _lock(locate(f"data.{KEY}", data.call[KEY]) if module is None else type(module)):
        source = create_source(data, module, options["seed"], options["batch_size"])
        facts, defaults = facts_of(source, trainer)
        if module is None:
            facts = replace(facts, **batch_facts(source, options["task"].samples))
    options["data"] = replace(data, **vars(facts))
    options |= {name: options[name] or default for name, default in defaults.items()}


@contextmanager
def _lock(call: Any) -> Iterator[None]:
    """Lock the source file of a class around prepare_data, which may download, since all ranks of torchrun call it."""
    with ExitStack() as stack:
        with suppress(OSError, TypeError):  # it is no class, or defined in no file
            file = stack.enter_context(Path(str(inspect.getsourcefile(call))).open())
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def create_user_module(plan: Plan) -> tuple[Any, LoaderSource, Callable[..., ModuleStep]]:
    """Return a module with weights under the run's seed, the source of its loaders, and what creates its step."""
    module = create_module(plan.model, plan.seed)  # type: ignore[arg-type]

    def convert_module() -> None:
        if plan.sync_batchnorm:
            from lockstep.parallel.sync_batchnorm import convert_batchnorm

            convert_batchnorm(module)
        convert(plan, module)
        if (net := net_of(module)) is not None:
            net.to(memory_format=memory_format_of(plan, net))

    def configure_model(original: Callable[[], None]) -> None:
        with default_dtype(torch.float32):  # weights are drawn in float32, whatever the plan's dtype
            seeded(plan.seed, original)
        convert_module()

    convert_module()
    if plan.show_shapes and (net := net_of(module)) is not None:
        show_shapes(net, plan.strategy.layout(plan.devices).replicas)
    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    kind = ModuleStep
    if plan.strategy.layout(plan.devices).virtual_ranks > 1:
        from lockstep.steps.virtual_steps import VirtualSteps

        kind = VirtualSteps
    return module, create_source(plan.data, module, plan.seed, plan.batch_size), partial(kind, plan, module)
