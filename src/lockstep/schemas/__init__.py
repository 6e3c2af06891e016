"""The options of every config group, typed: what one may choose, and the bounds of each value. A file a group.

No torch here: a wrong value is refused before anything heavy is imported.
"""

from lockstep.schemas.callback import NoCallback, OwnCallback
from lockstep.schemas.checkpoint import Checkpoint
from lockstep.schemas.command import Command
from lockstep.schemas.data import MNIST, Data, Digits, Line, Points, RandomRegression
from lockstep.schemas.engine import Engine, Lightning, Raw
from lockstep.schemas.logger import CSV, Logger, MLflow, NoLogger, OwnLogger, TensorBoard, Wandb
from lockstep.schemas.model import CNN, MLP, LeNet, Linear, Model, OwnModule, OwnNet, SplitCNN
from lockstep.schemas.optimizer import SGD, Adam, Optimizer, OwnOptimizer
from lockstep.schemas.own_data import Loaders, ModelLoaders, OwnData, OwnLoaders
from lockstep.schemas.process_group import ProcessGroup
from lockstep.schemas.record import Record
from lockstep.schemas.scheduler import Constant, OneCycle, OwnScheduler, Scheduler, WarmupLinear
from lockstep.schemas.target import OneOfSeveral, Target
from lockstep.schemas.task import Auto, Autoencoding, Classification, LanguageModelling, OwnTask, Regression, Task
from lockstep.schemas.trainer import Trainer
