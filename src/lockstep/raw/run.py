"""One run from its plan to its metrics, in this rank's place: the whole of it on one page."""

from pathlib import Path

from lockstep import data
from lockstep.checkpoint.content import Content, own_names
from lockstep.checkpoint.reading import resume_after_restart, resume_state
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.data.loader import to_device_if_fits
from lockstep.errors import NotFinite
from lockstep.launch.topology import RankContext
from lockstep.memory import disable_malloc_trim
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.parallel import all_reduce_sums, convert_batchnorm, convert_dropout, show_shapes
from lockstep.plan import Plan
from lockstep.raw.checkpoints import Checkpoints
from lockstep.raw.loops import Run, evaluate, fit
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.results import results_of
from lockstep.run_files import Metrics, save_confusion
from lockstep.running_sums import RunningSums
from lockstep.seeding import build_model, seed_rank
from lockstep.world_dependence import heading


def run(plan: Plan, context: RankContext) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics.

    Each rank is a process, and has joined its peers: `lockstep.launch.worker` calls init_process_group and set_device.
    """
    disable_malloc_trim()
    plan = resume_after_restart(plan, context.restarts)
    tensors = data.load(plan.data)
    net = convert_batchnorm(plan, build_model(plan, tensors))  # the same weights on every rank
    masks = convert_dropout(plan, context.rank, net)
    show_shapes(plan, net)
    seed_rank(plan.seed, context.rank)  # and from here on random numbers of its own

    start = resume_state(plan, net)
    device, *_ = plan.strategy.devices(plan)
    precision = Precision(plan, device)
    wrapped = plan.strategy.wrap(plan, net)
    optimizer = create_optimizer(plan.optimizer, net)
    scheduler = create_scheduler(plan.scheduler, optimizer, plan.total_steps)
    report = Report(plan, context.rank, device, start.at.steps)
    tensors = to_device_if_fits(tensors, device)
    state = Run(plan, context, device, tensors, wrapped, masks, optimizer, scheduler, precision, report, plan.task)

    if plan.train:
        recorder = start.recorder(plan, context.rank, net)
        manager = CheckpointManager(plan, context.rank, recorder)
        checkpoints = Checkpoints(manager, net, optimizer, scheduler, precision, report)
        if start.checkpoint is not None and start.content is not None:
            checkpoints.restore(start.checkpoint)
            restore_run(state, start.content, manager)
        try:
            with context.stop.listening(state.batches):
                fit(state, recorder, checkpoints)
        except NotFinite:
            report.flush()  # the curve shows how it came about
            raise
    elif start.checkpoint is not None:
        net.load_state_dict(own_names(start.checkpoint["state_dict"]))
    if plan.test:
        totals = all_reduce_sums(evaluate(state, tensors.test), device)
        tested = plan.task.metrics("test", totals)
        state.results |= tested
        if context.rank == 0 and plan.data.classes:
            save_confusion(Path(plan.run_dir), plan.task.confusion_of(totals).tolist())
        report.log({**tested, "epoch": state.at.epochs}, state.at.steps)
    report.close(heading(plan, net), state.results)
    return results_of(
        plan,
        net,
        epochs=state.at.epochs,
        steps=state.at.steps,
        seconds=state.seconds,
        trained=state.trained,
        measured=state.results,
    )


def restore_run(state: Run, content: Content, manager: CheckpointManager) -> None:
    """Go on from where a checkpoint stands: position, metrics, and what is this rank's own."""
    sums = manager.restore(content, state.wrapped.net)
    state.at, state.results = content.position, dict(content.results)
    state.running_sums, state.report.running_sums = (RunningSums(state.task, sums[name]) for name in ("epoch", "curve"))
    state.trained = -content.samples  # of the epoch under way: an earlier run trained on them
