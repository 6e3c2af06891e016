"""The objects of one run on one rank, which the callbacks of the Trainer use."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelPruning
from torch import nn

from lockstep.base.config_error import require
from lockstep.base.precision import convert, default_dtype
from lockstep.base.random_state import seed_rank, seeded
from lockstep.base.streams import notice
from lockstep.base.structures import tensors_in
from lockstep.engine.compiling import compile_nets
from lockstep.engine.loaders.source import LoaderSource, RankData, create_data, create_module
from lockstep.engine.log import ExactLog, attach_log
from lockstep.engine.notes import RunNotes
from lockstep.engine.phases import Phases
from lockstep.engine.progress import RunProgress
from lockstep.engine.results import Results
from lockstep.engine.step import ModuleStep
from lockstep.engine.virtual import VirtualSteps
from lockstep.launch.memory import keep_freed_memory, memory_format_of
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.plan.targets.kinds import overrides, replace_method
from lockstep.runs.checkpoint.content import named_as_in
from lockstep.runs.checkpoint.files import FOLDER, LAST
from lockstep.runs.checkpoint.reading import read_start
from lockstep.runs.loggers import create_loggers
from lockstep.runs.record import StepRecorder
from lockstep.strategies.parallel.sync_batchnorm import convert_batchnorm
from lockstep.strategies.parallel.tensor_layout import load_full_state_dict
from lockstep.strategies.strategy import net_of


class Session:
    """`data`: this rank's batches; `step`: the weight of their loss; `log`: the values of `self.log`.

    `progress`: where training stands; `phases`: its seconds; `recorder`: set when training begins.
    random: during an evaluation, the state of the generators of training.
    """

    random: Any = None
    recorder: StepRecorder

    def __init__(self, plan: Plan, context: RankContext) -> None:
        """Create the module, its weights first, the same on every rank."""
        keep_freed_memory()
        self.plan, self.context = plan, context
        self.start = read_start(plan)
        self.device, *_ = plan.strategy.devices(plan)
        self.module = prepared_module(plan)
        data_module = create_data(plan.data, plan.seed) if plan.data.is_module else None
        source = LoaderSource(plan.data, self.module, plan.seed, plan.batch_size, data_module)
        self.data = RankData(plan, context, source, self.start.position)
        self.log = ExactLog(self.module, plan.data_rank(context.rank), plan.reports(context.rank))
        self.loggers = create_loggers(plan, context.rank, self.start.position.steps)
        step_type = VirtualSteps if plan.strategy.virtual_ranks(plan) > 1 else ModuleStep
        self.step = step_type(plan, self.module, self.log, self.data, plan.reports(context.rank))
        self.step.phases = self.phases = Phases(self.device, waits=plan.profiler == "simple")
        attach_log(self.module, self.log)
        self.progress = RunProgress(plan, context, self.start.position, self.data.runs("val"))
        self.notes = RunNotes(plan, context.rank)
        self.results = Results(self.module, self.log, self.loggers, self.progress, self.phases)

    @property
    def trainer(self) -> pl.Trainer:
        return self.module.trainer  # type: ignore[no-any-return]

    @property
    def last_checkpoint(self) -> Path:
        return Path(self.plan.run_dir) / FOLDER / LAST

    @contextmanager
    def running(self) -> Iterator[None]:
        """Close the loggers if the run fails, and restore the flags of torch that the Trainer sets."""
        before = torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark
        try:
            with closing(self.notes), self.plan.strategy.errors():
                yield
        except BaseException:
            with suppress(Exception):  # the first error is the one to show
                self.loggers.flush()
                self.loggers.close("failed")
            raise
        finally:
            torch.set_deterministic_debug_mode(before[0])
            torch.backends.cudnn.benchmark = before[1]

    def begin(self, callbacks: Sequence[Any]) -> None:
        """Begin the record. The module is configured, its optimizers are not restored yet."""
        plan, rank = self.plan, self.context.rank
        # Lightning sets this on import; with it every step of Adam would load the driver to ask whether there is a GPU
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
        check_callbacks(plan, callbacks)
        if rank == 0 and (note := plan.strategy.note(plan)):
            notice(note)
        reason, hint = "it sets automatic_optimization after it was created", "one that sets it in its __init__"
        require(plan.model.manual != self.module.automatic_optimization, "model", plan.model.name, reason, hint)
        seed_rank(plan.seed, plan.data_rank(rank))  # after Lightning, which seeds as seed_everything did
        if self.data.runs("val") and not self.start.is_finished:
            self.data.loaders("val")  # raises for wrong ones before the first step
        at, content = self.start.position, self.start.content
        offset = content["record"] if content else None
        self.recorder = self.results.recorder = StepRecorder(plan, rank, self.module, at.epochs, at.batch, offset)
        self.recorder.seconds = lambda: self.phases.total_seconds
        if plan.compile:
            compile_nets(plan, rank, self.module)

    def load_weights(self, checkpoint: Mapping[str, Any]) -> None:
        weights = named_as_in(self.module, checkpoint["state_dict"])
        load_full_state_dict(self.module, weights, self.module.strict_loading)


def prepared_module(plan: Plan) -> Any:
    """Return the module with weights under the run's seed, in the plan's dtype and memory format."""
    module = create_module(plan.model, plan.seed)

    def convert_module() -> None:
        if plan.sync_batchnorm:
            convert_batchnorm(module)
        convert(plan, module)
        if (net := net_of(module)) is not None:
            net.to(memory_format=memory_format_of(plan, net))

    def configure_model(original: Any) -> None:
        with default_dtype(torch.float32):  # weights are drawn in float32, whatever the plan's dtype
            seeded(plan.seed, original)
        convert_module()

    convert_module()
    if overrides(module, "configure_model"):
        replace_method(module, "configure_model", configure_model)
    if plan.show_shapes and (net := net_of(module)) is not None:
        show_shapes(net, plan.devices if plan.strategy.replicates else 1)
    return module


def show_shapes(net: nn.Module, replicas: int) -> None:
    """Have each of the net's replicas, in a process or a thread, print the shapes of its first training batch."""
    remaining = replicas

    def show(module: nn.Module, inputs: Any, outputs: Any) -> None:
        nonlocal remaining
        if remaining > 0 and module.training:
            remaining -= 1
            shapes = " ".join(str(tuple(tensor.shape)) for tensor in tensors_in(outputs))
            print(f"a replica sees {tuple(inputs[0].shape)} and returns {shapes}", flush=True)

    net.register_forward_hook(show)


def check_callbacks(plan: Plan, callbacks: Sequence[Any]) -> None:
    """Raise if the strategy cannot have a callback, or if it changes what no plan or checkpoint knows."""
    for callback in callbacks:
        kind = type(callback)
        plan.strategy.check_callback(plan, f"{kind.__module__}.{kind.__qualname__}")
        reason, hint = "it changes how many batches an optimizer step has", "accumulate_grad_batches=2 in its place"
        require(not isinstance(callback, GradientAccumulationScheduler), "callbacks", kind.__name__, reason, hint)
        if plan.ckpt_path is not None:
            reason, hint = "no checkpoint holds its masks", "resume=false, to train anew"
            require(not isinstance(callback, ModelPruning), "callbacks", kind.__name__, reason, hint)
