"""What a run prints while it trains, beside its bar."""

import sys


def print_beside_bar(text: str) -> None:
    """Print above a bar, if one is under way in this process."""
    from tqdm import tqdm

    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def notice(sentence: str) -> None:
    """Print a line on stderr about something that does not end the run."""
    print(sentence, file=sys.stderr, flush=True)
