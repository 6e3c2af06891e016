"""Two ranks of gloo that measure cases, forked once from the fork server of the tests."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing

from lockstep.launch import forkserver


@contextmanager
def two_ranks(measure: Callable[[Path], Any], folder: Path) -> Iterator[Callable[[], list[Any]]]:
    """Call a function of a module on two ranks; yield one that waits for what they return, and raises if one failed."""
    start: Any = multiprocessing.start_processes  # type: ignore[attr-defined]
    forkserver.start_forkserver()
    ranks = start(_measure, (measure, folder), nprocs=2, join=False, start_method="forkserver")

    def results() -> list[Any]:
        while not ranks.join(timeout=1):
            pass
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]

    try:
        yield results
    finally:
        for process in ranks.processes:
            process.kill()


def _measure(rank: int, measure: Callable[[Path], Any], folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_RANK", str(rank))
        distributed.init_process_group("gloo", f"file://{folder / 'rendezvous'}", rank=rank, world_size=2)
        torch.save(measure(folder), folder / f"{rank}.pt")
        distributed.destroy_process_group()
