"""What a run shows while it trains, by either engine: a line for each epoch, notices."""

import sys
from collections.abc import Mapping


def epoch_line(epoch: int, epochs: int, metrics: Mapping[str, float], seconds: float) -> str:
    """`epoch 3/20  train/loss 0.1234  val/acc 0.9722  val/loss 0.0987  0.31 s`."""
    named = "  ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
    return f"epoch {epoch}/{epochs}  {named}  {seconds:.2f} s"


def print_beside_bar(text: str) -> None:
    """Print above a bar, if one is under way in this process."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def notice(sentence: str) -> None:
    """Print a line on stderr about something that does not end the run."""
    print(sentence, file=sys.stderr, flush=True)
