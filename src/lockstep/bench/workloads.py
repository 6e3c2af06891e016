"""What is measured, by name: the table of the bench."""

from collections.abc import Callable

from lockstep.bench.context import BenchContext
from lockstep.bench.measurement import Measurement
from lockstep.bench.scaling import collectives, scaling, threads
from lockstep.bench.startup import startup, sweep
from lockstep.bench.training import cnn, linear, mlp, module, monitoring

WORKLOADS: dict[str, Callable[[BenchContext], list[Measurement]]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "module": module,
    "monitoring": monitoring,
    "threads": threads,
    "scaling": scaling,
    "collectives": collectives,
    "startup": startup,
    "sweep": sweep,
}
ON_MNIST = {"mlp", "cnn", "threads", "monitoring"}
