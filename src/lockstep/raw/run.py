"""One run from its plan to its metrics, in this rank's place: the whole of it on one page."""

from pathlib import Path

from lockstep import data
from lockstep.checkpoint import read_checkpoint
from lockstep.launch.place import Place
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.parallel import devices_of, show_shapes, slice_dropout, synchronise_batchnorm
from lockstep.plan import Plan
from lockstep.raw.checkpoints import Checkpoints
from lockstep.raw.loops import Run, evaluate, fit
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.raw.wrap import wrap
from lockstep.record import Metrics, save_confusion
from lockstep.recorder import Recorder, results_of
from lockstep.seeding import initial_net, seed_rank
from lockstep.task import task_of


def run(plan: Plan, place: Place) -> Metrics:
    """Train and test as the plan says. Every rank returns the same metrics.

    Each rank is a process, and has joined its peers: `lockstep.launch.worker` calls init_process_group and set_device.
    """
    tensors = data.load(plan.data)
    net = synchronise_batchnorm(plan, initial_net(plan, tensors))  # the same weights on every rank
    masks = slice_dropout(plan, place.rank, net)
    show_shapes(plan, net)
    seed_rank(plan.seed, place.rank)  # and from here on random numbers of its own

    device, *_ = devices_of(plan)
    precision = Precision(plan, device)
    wrapped = wrap(plan, net)
    optimizer = create_optimizer(plan.optimizer, net)
    scheduler = create_scheduler(plan.scheduler, optimizer, plan.total_steps)
    report = Report(plan, place.rank)
    task = task_of(plan.data.classes)
    state = Run(plan, place, device, tensors, wrapped, masks, optimizer, scheduler, precision, report, task)

    checkpoints = Checkpoints(plan, place.rank, net, optimizer, scheduler, precision)
    if plan.ckpt_path is not None:
        checkpoint = read_checkpoint(plan, net)
        checkpoints.restore(checkpoint, training=plan.train)
        if plan.train:
            state.epoch, state.step = checkpoint["epoch"] + 1, checkpoint["global_step"]
    if plan.train:
        fit(state, Recorder(plan, place.rank, net), checkpoints)
    if plan.test:
        tested, counts = evaluate(state, "test", tensors.test)
        state.results |= tested
        if place.rank == 0 and plan.data.classes:
            save_confusion(Path(plan.run_dir), counts.tolist())
        report.log({**tested, "epoch": state.epoch}, state.step)
    report.close(state.results)
    return results_of(
        plan,
        net,
        epochs=state.epoch,
        steps=state.step,
        seconds=state.seconds,
        trained=state.trained,
        measured=state.results,
    )
