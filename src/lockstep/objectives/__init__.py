"""Objectives of plain nets: the loss and the metrics of each task."""

from functools import cache

from lockstep.objectives.objective import FromConfusion, FromLoss, Mean, Objective
from lockstep.objectives.tasks import AUTOENCODING, REGRESSION, classification, language_modelling

__all__ = ["FromConfusion", "FromLoss", "Mean", "Objective", "objective_of"]


@cache
def objective_of(task: str, classes: int, ignored: int | None = None) -> Objective:
    """Return the objective of a built-in task; `auto` is classification if the data has classes, else regression."""
    if task == "language_modelling":
        return language_modelling(ignored)
    if classes and task != "autoencoding":
        return classification(classes, ignored)
    return AUTOENCODING if task == "autoencoding" else REGRESSION
