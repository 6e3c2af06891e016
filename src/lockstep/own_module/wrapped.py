"""A run's LightningModule with its first weights and its data, and what of it is wrapped, once for both engines.

The module is the user's own object. Of this one instance some methods are wrapped: `log` and `log_dict` keep what is
logged, `setup` and `configure_model` draw under the run's seed, the dataloaders are divided among ranks, and the
training step is weighed (`weighed_step`). All else an engine calls as it stands.
"""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import torch

from lockstep.checkpoint.choice import resume_after_restart
from lockstep.checkpoint.reading import ResumeState, read_start
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.monitor import open_loggers
from lockstep.own_module.collectives import require_samples
from lockstep.own_module.create import METHOD, STAGES, STEP, LoaderSource, create_module
from lockstep.own_module.facts import filled
from lockstep.own_module.loaders import RankLoader, Share
from lockstep.own_module.logged import Logged
from lockstep.own_module.plateau import require_monitors
from lockstep.own_module.shares import each_tensor
from lockstep.own_module.step_phases import wrap_phases
from lockstep.own_module.weighed_step import WeighedStep, replace_method
from lockstep.own_module.whole_weights import WholeWeights
from lockstep.parallel import convert_batchnorm
from lockstep.plan import Plan
from lockstep.precision import convert, default_dtype, dtype_of
from lockstep.random_state import seed_rank
from lockstep.sums.phases import Phases
from lockstep.targets.kinds import overrides
from lockstep.targets.locate import locate

TO_DEVICE = "transfer_batch_to_device"


class WrappedModule:
    """In one rank's place. `rank_loaders` are this rank's shares of the user's loaders, by stage.

    net: whose weights the record and checkpoints are of: the module itself.
    """

    module: Any
    net: Any
    source: LoaderSource
    start: ResumeState
    loggers: Loggers
    step: WeighedStep

    def __init__(self, plan: Plan, context: RankContext) -> None:
        self.plan = plan = resume_after_restart(plan, context.restarts)
        self.context = context
        self.device, *_ = plan.strategy.devices(plan)
        self.phases = Phases()
        self._create()
        self.logged = Logged(self.module, context.rank, self.device)
        self.rank_loaders: dict[str, list[RankLoader]] = {}
        self.weights = WholeWeights(plan, self.module)
        self._wrap()

    def _create(self) -> None:
        """The module with its first weights, where its batches come from, the checkpoint to begin at, the loggers."""
        plan, rank = self.plan, self.context.rank
        call = locate("model._target_", plan.model.call["_target_"])
        facts = filled(call, plan.data, _known(plan), plan.seed)
        self.module = self.net = create_module(plan.model, facts, plan.seed)  # type: ignore[arg-type]
        self._convert()
        self.source = LoaderSource(plan.data, self.module, plan.seed, plan.batch_size)
        seed_rank(plan.seed, rank)  # from here on random numbers of its own
        self.start = read_start(plan)
        self.loggers = open_loggers(plan, rank, self.start.at.steps)

    @property
    def log(self) -> Callable[..., None]:
        """What `self.log` is in the module and in callbacks: as in Lightning, nothing in a run with barebones."""
        return self.logged.log if self.plan.saves else _nothing

    @property
    def log_dict(self) -> Callable[..., None]:
        return self.logged.log_dict if self.plan.saves else _nothing

    @property
    def manual(self) -> bool:
        """Whether the module steps its optimizers itself."""
        return not self.module.automatic_optimization

    def runs(self, stage: str) -> bool:
        """Whether there is a loader and a step for a stage, and the plan leaves it some batches."""
        return self.source.has(stage) and getattr(self.plan.trainer, f"limit_{stage}_batches") != 0

    def _wrap(self) -> None:
        module, owner = self.module, self.source.owner or self.module
        for own in module.modules():
            if hasattr(own, "automatic_optimization") and hasattr(own, "log_dict"):  # LightningModules within it, too
                object.__setattr__(own, "log", self.log)
                object.__setattr__(own, "log_dict", self.log_dict)
        self._wrap_step()
        self.weights.wrap()
        wrap_phases(module, self.phases)
        for own in {id(module): module, id(owner): owner}.values():
            replace_method(own, "setup", self._seeded_setup)
            replace_method(own, "prepare_data", lambda _: lambda: None)  # done before any rank was started
        if overrides(module, "configure_model"):
            replace_method(module, "configure_model", self._configure_model)
        if not self.manual:
            replace_method(module, "configure_optimizers", self._configure_optimizers)
        for stage in STAGES:
            if self.runs(stage):
                object.__setattr__(owner, METHOD[stage], lambda stage=stage: self._loaders(stage))

    def _wrap_step(self) -> None:
        self.step = WeighedStep(self.plan, self.module, self.logged, self.transfer)
        self.step.wrap()

    def stepless(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The module's `optimizers`, as a virtual rank may have them."""
        return self.step.stepless(original)

    def virtual_ranks(self) -> int:
        """Into so many parts a loader divides a batch of training."""
        return self.plan.strategy.virtual_ranks(self.plan.devices)

    def _seeded_setup(self, original: Callable[..., None]) -> Callable[..., None]:
        return lambda stage=None: self.source.seeded(lambda: original(stage))

    def _configure_model(self, original: Callable[[], None]) -> Callable[[], None]:
        def configure_model() -> None:
            with default_dtype(torch.float32):  # first weights are drawn in it, whatever the plan's numbers
                self.source.seeded(original)
            self._convert()

        return configure_model

    def _configure_optimizers(self, original: Callable[[], Any]) -> Callable[[], Any]:
        @wraps(original)
        def configure_optimizers() -> Any:
            require_monitors(self.plan.model.name, made := original())
            return made

        return configure_optimizers

    def _convert(self) -> None:
        convert_batchnorm(self.plan, self.module)
        convert(self.plan, self.module)

    def _loaders(self, stage: str) -> Any:
        """This rank's shares of the user's loaders, made once."""
        if stage not in self.rank_loaders:
            training = stage == "train"
            ranks = self.virtual_ranks() if training else 1
            share = Share(self.context.rank, self.context.world_size, ranks)
            self.rank_loaders[stage] = self.source.loaders(stage, share)
            for own in self.rank_loaders[stage]:
                own.begin = (self.start.at.epochs, self.start.at.batch)
                own.set_epoch(self.start.at.epochs if training else 0)
                own.accumulation = self.plan.batches_per_step
                own.fixed = training and self.plan.trainer.overfit_batches > 0
                own.limit = getattr(self.plan.trainer, f"limit_{stage}_batches")
            if not training:
                held, world = self.rank_loaders[stage], self.context.world_size
                require_samples(self.module, STEP[stage], self.plan.data.name, held, world)
        found = self.rank_loaders[stage]
        return found[0] if len(found) == 1 else found

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        """A batch in the plan's numbers, brought to the device by hooks of the module or of its LightningDataModule."""
        dtype = dtype_of(self.plan)
        batch = each_tensor(batch, lambda own: own.to(dtype) if own.is_floating_point() else own)
        for name, hook in self._transfer_hooks:
            batch = hook(batch, self.device, loader) if name == TO_DEVICE else hook(batch, loader)
        return batch

    @cached_property
    def _transfer_hooks(self) -> list[tuple[str, Callable[..., Any]]]:
        """In their order, those that somebody overrides; a batch moves to a CPU by itself."""
        owners = [self.source.owner, self.module] if self.source.is_data_module else [self.module]
        found = []
        for name in ("on_before_batch_transfer", TO_DEVICE, "on_after_batch_transfer"):
            theirs = [getattr(own, name) for own in owners if overrides(own, name)]
            if theirs or (name == TO_DEVICE and self.device.type != "cpu"):
                found.append((name, theirs[0] if theirs else getattr(self.module, name)))
        return found


def _nothing(*_: Any, **named: Any) -> None:
    pass


def _known(plan: Plan) -> dict[str, Any]:
    """What the plan knows of the data."""
    outputs = getattr(plan.data, "outputs", 0)
    return {"shape": plan.data.shape, "outputs": outputs} if outputs else {}  # type: ignore[union-attr]
