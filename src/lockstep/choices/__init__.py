"""The options of every config group, typed: what one may choose, and the bounds of each value. A file a group.

No torch here: a wrong value is refused before anything heavy is imported.
"""

from lockstep.choices.checkpoint import Checkpoint
from lockstep.choices.data import MNIST, Data, Digits, Line, Points, Rows
from lockstep.choices.engine import Engine, Lightning, Raw
from lockstep.choices.logger import Logger
from lockstep.choices.model import CNN, MLP, LeNet, Linear, Model, SplitCNN
from lockstep.choices.optimizer import SGD, Adam, Optimizer
from lockstep.choices.process_group import ProcessGroup
from lockstep.choices.record import Record
from lockstep.choices.scheduler import Constant, OneCycle, Scheduler, WarmupLinear
from lockstep.choices.strategy import DDP, DP, DDPSpawn, ModelParallel, Single, Strategy

__all__ = [
    "CNN",
    "DDP",
    "DP",
    "GROUPS",
    "MLP",
    "MNIST",
    "SGD",
    "Adam",
    "Checkpoint",
    "Constant",
    "DDPSpawn",
    "Data",
    "Digits",
    "Engine",
    "LeNet",
    "Lightning",
    "Line",
    "Linear",
    "Logger",
    "Model",
    "ModelParallel",
    "OneCycle",
    "Optimizer",
    "Points",
    "ProcessGroup",
    "Raw",
    "Record",
    "Rows",
    "Scheduler",
    "Single",
    "SplitCNN",
    "Strategy",
    "WarmupLinear",
]

GROUPS: dict[str, dict[str, type]] = {
    "engine": {"lightning": Lightning, "raw": Raw, "both": Raw},
    "strategy": {"single": Single, "ddp": DDP, "ddp_spawn": DDPSpawn, "dp": DP, "model_parallel": ModelParallel},
    "model": {"linear": Linear, "mlp": MLP, "cnn": CNN, "lenet": LeNet, "split_cnn": SplitCNN},
    "data": {"digits": Digits, "mnist": MNIST, "points": Points, "line": Line, "rows": Rows},
    "optimizer": {"sgd": SGD, "adam": Adam, "adamw": Adam},
    "scheduler": {"none": Constant, "onecycle": OneCycle, "warmup_linear": WarmupLinear},
    "logger": {"tensorboard": Logger, "csv": Logger, "none": Logger},
}
