"""The line that a run prints for each epoch, whichever engine runs it."""

from collections.abc import Mapping


def epoch_line(epoch: int, epochs: int, metrics: Mapping[str, float], seconds: float) -> str:
    """`epoch 3/20  train/loss 0.1234  val/acc 0.9722  val/loss 0.0987  0.31 s`."""
    named = "  ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
    return f"epoch {epoch}/{epochs}  {named}  {seconds:.2f} s"


def curves_from(resume: bool, step: int) -> str:
    """The folder, below csv/, of a table of curves: one of its own for training that goes on in the run's folder."""
    return f"from_step_{step + 1}" if resume and step else ""
