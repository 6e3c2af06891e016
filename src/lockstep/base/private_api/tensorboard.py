"""Private names of torch's SummaryWriter: summaries that no public call writes in this form."""

from collections.abc import Mapping
from typing import Any


def hparams_session(hparams: Mapping[str, str | int | float]) -> tuple[Any, Any]:
    """Return the summaries of the beginning, with the hyper-parameters, and of the successful end of a run.

    Without the list of names that SummaryWriter.add_hparams writes: TensorBoard would take that of one run for all.
    """
    from torch.utils.tensorboard.summary import hparams as hparams_summaries

    _, begin, end = hparams_summaries({**hparams}, {})  # type: ignore[no-untyped-call]
    return begin, end
