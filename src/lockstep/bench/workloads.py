"""What is measured, by name: the table of the bench."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lockstep.bench.growth import growth
from lockstep.bench.ranks import collectives, memory
from lockstep.bench.roofline import roofline
from lockstep.bench.row import Row
from lockstep.bench.setting import Setting
from lockstep.bench.startup import startup, sweep
from lockstep.bench.training import cnn, ddp_scaling, mlp, s2


@dataclass(frozen=True)
class Workload:
    about: str
    measure: Callable[[Setting], list[Row]]
    on_mnist: bool = False


WORKLOADS = {
    "s2": Workload("linear regression, batch 32, 10 epochs", s2),
    "mlp": Workload("an epoch of the MLP on MNIST, batch 128", mlp, True),
    "cnn_2000": Workload("SimpleCNN on MNIST, batch 2000", partial(cnn, batch_size=2000, quick=2000), True),
    "cnn_250": Workload("SimpleCNN on MNIST, batch 250", partial(cnn, batch_size=250, quick=1500), True),
    "ddp_scaling": Workload("SimpleCNN by two ranks of a thread, and by one of two", ddp_scaling, True),
    "startup": Workload("whole commands, S2 for two epochs", startup),
    "sweep": Workload("what a further job costs", sweep),
    "memory": Workload("resident memory of a rank, MLP on MNIST", memory, True),
    "collectives": Workload("calls of a rank under ddp, counted", collectives),
    "growth": Workload("over samples and over ranks", growth),
    "roofline": Workload("SimpleCNN: arithmetic and memory traffic, beside the machine's own", roofline, True),
}
