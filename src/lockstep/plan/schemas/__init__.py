"""Typed options of Lockstep's own groups, and targets of the others. No torch here: checked before imports."""

from lockstep.plan.schemas.run import Checkpoint, Command, Engine, Lightning, ProcessGroup, Raw, Record, Trainer
from lockstep.plan.schemas.target import Callback, Data, Logger, Module, Target
