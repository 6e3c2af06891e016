"""Typed options of all config groups. No torch here: invalid values are refused before imports."""

from lockstep.schemas.data import (
    MNIST,
    Data,
    DataFacts,
    Digits,
    Line,
    Loaders,
    ModelLoaders,
    Points,
    RandomRegression,
    UserData,
    UserLoaders,
)
from lockstep.schemas.engine import Engine, Lightning, Raw
from lockstep.schemas.logger import CSV, Logger, MLflow, TensorBoard, UserCallback, UserLogger, Wandb
from lockstep.schemas.model import Linear, Model, UserLightningModule, UserModel
from lockstep.schemas.optimizer import (
    SGD,
    Adam,
    Constant,
    OneCycle,
    Optimizer,
    Scheduler,
    UserOptimizer,
    UserScheduler,
    WarmupLinear,
)
from lockstep.schemas.run import Checkpoint, Command, ProcessGroup, Record
from lockstep.schemas.target import Target
from lockstep.schemas.task import BuiltInTask, Task, UserTask
from lockstep.schemas.trainer import Trainer
