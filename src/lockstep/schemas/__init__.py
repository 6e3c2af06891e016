"""The options of every config group, typed: what one may choose, and the bounds of each value. A file a group.

No torch here: a wrong value is refused before anything heavy is imported.
"""

from lockstep.schemas.checkpoint import Checkpoint
from lockstep.schemas.data import MNIST, Data, Digits, Line, Points, RandomRegression
from lockstep.schemas.engine import Engine, Lightning, Raw
from lockstep.schemas.logger import Logger
from lockstep.schemas.model import CNN, MLP, LeNet, Linear, Model, SplitCNN
from lockstep.schemas.optimizer import SGD, Adam, Optimizer
from lockstep.schemas.process_group import ProcessGroup
from lockstep.schemas.record import Record
from lockstep.schemas.scheduler import Constant, OneCycle, Scheduler, WarmupLinear
from lockstep.strategies import STRATEGIES

__all__ = [
    "CNN",
    "GROUPS",
    "MLP",
    "MNIST",
    "SGD",
    "Adam",
    "Checkpoint",
    "Constant",
    "Data",
    "Digits",
    "Engine",
    "LeNet",
    "Lightning",
    "Line",
    "Linear",
    "Logger",
    "Model",
    "OneCycle",
    "Optimizer",
    "Points",
    "ProcessGroup",
    "RandomRegression",
    "Raw",
    "Record",
    "Scheduler",
    "SplitCNN",
    "WarmupLinear",
]

GROUPS: dict[str, dict[str, type]] = {
    "engine": {"lightning": Lightning, "raw": Raw, "both": Raw},
    "strategy": {**STRATEGIES},
    "model": {"linear": Linear, "mlp": MLP, "cnn": CNN, "lenet": LeNet, "split_cnn": SplitCNN},
    "data": {"digits": Digits, "mnist": MNIST, "points": Points, "line": Line, "random_regression": RandomRegression},
    "optimizer": {"sgd": SGD, "adam": Adam, "adamw": Adam},
    "scheduler": {"none": Constant, "onecycle": OneCycle, "warmup_linear": WarmupLinear},
    "logger": {"tensorboard": Logger, "csv": Logger, "none": Logger},
}
