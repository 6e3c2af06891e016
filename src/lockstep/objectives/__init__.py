"""What plain nets are trained for: by each task its loss and its metrics."""

from functools import cache

from lockstep.objectives.classification import classification
from lockstep.objectives.language_modelling import language_modelling
from lockstep.objectives.objective import FromConfusion, FromLoss, Mean, Objective
from lockstep.objectives.regression import AUTOENCODING, REGRESSION

__all__ = ["FromConfusion", "FromLoss", "Mean", "Objective", "objective_of"]


@cache
def objective_of(task: str, classes: int, ignored: int | None = None) -> Objective:
    """Of a built-in task, by its name; `auto` classifies where there are classes, and regresses where there are none.

    Args:
        classes: of the data, 0 where it has none.
        ignored: a target that does not count.
    """
    match task:
        case "autoencoding":
            return AUTOENCODING
        case "language_modelling":
            return language_modelling(ignored)
        case _:
            return classification(classes, ignored) if classes else REGRESSION
