"""Typed options of Lockstep's own groups, and targets of the others. No torch here: checked before imports."""

from lockstep.schemas.data import Data
from lockstep.schemas.engine import Engine, Lightning, Raw
from lockstep.schemas.logger import Callback, Logger
from lockstep.schemas.model import Module
from lockstep.schemas.run import Checkpoint, Command, ProcessGroup, Record
from lockstep.schemas.target import Target
from lockstep.schemas.trainer import Trainer
