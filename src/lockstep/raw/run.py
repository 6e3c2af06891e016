"""One run from its plan to its metrics, in this rank's place: the whole of it on one page."""

from pathlib import Path

from lockstep import data, task
from lockstep.checkpoint.content import Content, own_names
from lockstep.checkpoint.keeper import Keeper
from lockstep.checkpoint.reading import going_on, starting_point
from lockstep.data.loader import resident
from lockstep.ending import NotFinite
from lockstep.launch.place import Place
from lockstep.memory import keep_freed
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.parallel import devices_of, show_shapes, slice_dropout, sums_over_ranks, synchronise_batchnorm
from lockstep.plan import Plan
from lockstep.raw.checkpoints import Checkpoints
from lockstep.raw.loops import Run, evaluate, fit
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.raw.wrap import wrap
from lockstep.record import Metrics, save_confusion
from lockstep.results import results_of
from lockstep.seeding import initial_net, seed_rank
from lockstep.task import Tally


def run(plan: Plan, place: Place) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics.

    Each rank is a process, and has joined its peers: `lockstep.launch.worker` calls init_process_group and set_device.
    """
    keep_freed()
    plan = going_on(plan, place.restarts)
    tensors = data.load(plan.data)
    net = synchronise_batchnorm(plan, initial_net(plan, tensors))  # the same weights on every rank
    masks = slice_dropout(plan, place.rank, net)
    show_shapes(plan, net)
    seed_rank(plan.seed, place.rank)  # and from here on random numbers of its own

    start = starting_point(plan, net)
    device, *_ = devices_of(plan)
    precision = Precision(plan, device)
    wrapped = wrap(plan, net)
    optimizer = create_optimizer(plan.optimizer, net)
    scheduler = create_scheduler(plan.scheduler, optimizer, plan.total_steps)
    report = Report(plan, place.rank, device, start.at.steps)
    judge = task.task_of(plan.data.classes)
    tensors = resident(tensors, device)
    state = Run(plan, place, device, tensors, wrapped, masks, optimizer, scheduler, precision, report, judge)

    if plan.train:
        recorder = start.recorder(plan, place.rank, net)
        keeper = Keeper(plan, place.rank, recorder)
        checkpoints = Checkpoints(keeper, net, optimizer, scheduler, precision, report)
        if start.checkpoint is not None and start.content is not None:
            checkpoints.restore(start.checkpoint)
            take_up(state, start.content, keeper)
        try:
            with place.stop.heard(state.batches):
                fit(state, recorder, checkpoints)
        except NotFinite:
            report.flush()  # the curve shows how it came about
            raise
    elif start.checkpoint is not None:
        net.load_state_dict(own_names(start.checkpoint["state_dict"]))
    if plan.test:
        totals = sums_over_ranks(evaluate(state, tensors.test), device)
        tested, counts = task.measured("test", totals, plan.data.classes)
        state.results |= tested
        if place.rank == 0 and plan.data.classes:
            save_confusion(Path(plan.run_dir), counts.tolist())
        report.log({**tested, "epoch": state.at.epochs}, state.at.steps)
    report.close(state.results)
    return results_of(
        plan,
        net,
        epochs=state.at.epochs,
        steps=state.at.steps,
        seconds=state.seconds,
        trained=state.trained,
        measured=state.results,
    )


def take_up(state: Run, content: Content, keeper: Keeper) -> None:
    """Go on from where a checkpoint stands: position, metrics, and what is this rank's own."""
    sums = keeper.take_up(content, state.wrapped.net)
    state.at, state.results = content.position, dict(content.results)
    state.tally, state.report.tally = Tally(sums["epoch"]), Tally(sums["curve"])
    state.trained = -content.samples  # of the epoch under way: an earlier run trained on them
