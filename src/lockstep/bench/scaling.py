"""What more ranks bring and cost: throughput over ranks, ranks against threads, and calls to other ranks."""

from functools import partial

from lockstep import launch
from lockstep.bench.context import BenchContext
from lockstep.bench.measurement import Measurement, take_turns
from lockstep.bench.payloads import COLLECTIVE_COUNTS, BenchPayload
from lockstep.bench.training import cnn_overrides, engine, measure_training
from lockstep.schemas.engine import ENGINES

RANKS = (1, 2, 4, 8)
DIGITS = ("data=digits", "accelerator=cpu", "strategy=ddp")


def scaling(context: BenchContext) -> list[Measurement]:
    """A thread a rank, an MLP on digits by the raw engine."""

    def throughput(ranks: int) -> float:
        own = ("engine=raw", f"devices={ranks}", "threads=1", "data.val_size=0", "batch_size=256", "max_epochs=10")
        return float(context.train(*DIGITS, *own, "test=false")["samples_per_second"])

    variants = {f"ranks: {ranks}": partial(throughput, ranks) for ranks in RANKS}
    values = take_turns(variants, context.slow_rounds, context.report)
    first, *_ = values
    return [
        Measurement("scaling", name, "samples/s", own, first, values[first], ranks=ranks)
        for ranks, (name, own) in zip(RANKS, values.items(), strict=True)
    ]


def threads(context: BenchContext) -> list[Measurement]:
    """The same two cores, as two threads of one process and as two ranks of one thread."""
    variants = {}
    for name in ENGINES:
        variants[name] = engine(name, "threads=2")
        ranks = ("threads=1", "strategy=ddp", "devices=2")
        variants[f"{name} ddp 2"] = engine(name, *ranks, **{name: 1.05})
    shared = (
        *cnn_overrides(context, context.pick(2000, 20_000)),
        f"batch_size={context.pick(1000, 2000)}",
        "accelerator=cpu",
    )
    return measure_training("threads", variants, shared, context.slow_rounds, context)


def collectives(context: BenchContext) -> list[Measurement]:
    """What a step and an epoch add: runs of few and many steps, of one epoch and of two, told apart by subtraction.

    The gradients of this MLP fit in one bucket, so a step needs one all-reduce.
    """
    shared = (*DIGITS, "devices=2", "model=mlp", "logger=none", "test=false")

    def count(engine: str, epochs: int, batch_size: int) -> tuple[int, int, int]:
        """All-reduces, other collectives and steps of a run."""
        context.report(f"{engine}, epochs: {epochs}, batch size: {batch_size}")
        with context.folder() as folder:
            plan = context.plan(folder, *shared, f"engine={engine}", f"max_epochs={epochs}", f"batch_size={batch_size}")
            return *launch.start(BenchPayload(plan, ENGINES[engine]), COLLECTIVE_COUNTS), plan.steps.total_steps

    found = []
    for name in ENGINES:
        few, few_others, few_steps = count(name, 1, 320)
        many, _, many_steps = count(name, 1, 160)
        twice, twice_others, _ = count(name, 2, 320)
        step = (many - few) / (many_steps - few_steps)
        row = partial(Measurement, "collectives", unit="calls")
        found += [
            row(f"{name}, all-reduces per step", values=(step,), goal=1.0),
            row(f"{name}, all-reduces per epoch", values=(twice - few - step * few_steps,), goal=1.0),
            row(f"{name}, others per epoch", values=(float(twice_others - few_others),)),
        ]
    return found
