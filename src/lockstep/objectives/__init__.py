"""What plain nets are trained for: by each task its loss and its metrics."""

from functools import cache

from lockstep.objectives.objective import FromConfusion, FromLoss, Mean, Objective

__all__ = ["FromConfusion", "FromLoss", "Mean", "Objective", "objective_of"]


@cache
def objective_of(task: str, classes: int, ignored: int | None = None) -> Objective:
    """Return the objective of a built-in task by its name; `auto` classifies if there are classes, else regresses.

    Args:
        classes: of the data, 0 where it has none.
        ignored: a target that does not count.
    """
    if task == "language_modelling":
        from lockstep.objectives.language_modelling import language_modelling

        return language_modelling(ignored)
    if classes and task != "autoencoding":
        from lockstep.objectives.classification import classification

        return classification(classes, ignored)
    from lockstep.objectives.regression import AUTOENCODING, REGRESSION

    return AUTOENCODING if task == "autoencoding" else REGRESSION
