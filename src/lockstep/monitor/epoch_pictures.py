"""Log the pictures of an epoch: the confusion matrix, the worst samples, the filters of the first layer."""

from math import prod

from torch import Tensor, nn

from lockstep.loggers.tensorboard import TensorBoard
from lockstep.monitor.pictures import confusion_picture, filters_picture, samples_picture

COLOURS = (1, 3)
"""Channels of a picture."""
FILTERS = 64


def show_pictures(
    board: TensorBoard,
    counts: Tensor | None,
    worst: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    net: nn.Module | None,
    shape: tuple[int, ...],
    step: int,
) -> None:
    """Log what there is to see.

    Args:
        counts: the confusion counts of all ranks.
        worst: inputs, targets, predicted classes and confidence of the most confident errors.
        net: whose filters are shown; None if it is sharded.
        shape: of a sample.
    """
    if counts is not None:
        board.log_image("val/confusion", confusion_picture(counts.cpu()), step)
    if worst is not None:
        _show_worst(board, worst, step)
    filters = None if net is None else first_filters(net, shape)
    if filters is not None:
        board.log_image("weights/first layer", filters_picture(filters[:FILTERS]), step)


def first_filters(net: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
    """Return weights (n, channels, h, w) of the first layer with weights, or None if they are no pictures.

    Those of a linear layer over images are returned in the images' shape.
    """
    first = next((own for own in net.modules() if isinstance(getattr(own, "weight", None), Tensor)), None)
    if isinstance(first, nn.Conv2d) and first.weight.shape[1] in COLOURS and max(first.kernel_size) > 1:
        return first.weight
    if isinstance(first, nn.Linear) and len(shape) == 3 and shape[0] in COLOURS and first.in_features == prod(shape):
        return first.weight.view(-1, *shape)
    return None


def _show_worst(board: TensorBoard, worst: tuple[Tensor, Tensor, Tensor, Tensor], step: int) -> None:
    inputs, targets, predicted, confidence = (own.cpu() for own in worst)
    wrong = int((confidence >= 0).sum())
    if wrong and inputs.dim() == 4 and inputs.shape[1] in COLOURS:
        rows = zip(targets.tolist(), predicted.tolist(), confidence.tolist(), strict=True)
        captions = [f"{true} as {other}, {sure:.0%}" for true, other, sure in rows]
        board.log_image("val/worst", samples_picture(inputs[:wrong], captions[:wrong]), step)
