"""Images of a classification, collected batch by batch: for TensorBoard and report.html."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.base.structures import tensors_in

COLOURS = (1, 3)  # channels of a picture
Columns = tuple[Tensor, ...]  # images (n, channels, h, w), true class, predicted class and confidence (n,), an order


def classified(batch: Any, targets: Tensor, scores: Tensor | None) -> Columns | None:
    """Return the images of a batch, their true and predicted classes and confidences; None if it has none.

    Under virtual ranks the images are rank 0's, and targets and scores those of all.
    """
    images = next(iter(tensors_in(batch)), None)
    if images is None or images.dim() != 4 or images.shape[1] not in COLOURS:
        return None
    if scores is None or scores.dim() != 2 or targets.dim() != 1:
        return None
    confidence, predicted = scores[: len(images)].detach().float().softmax(1).max(1)
    return images.detach(), targets[: len(images)], predicted, confidence


def confidence_of_errors(columns: Columns) -> Tensor:
    """Return the confidence of wrong predictions; -1 for right ones, and for targets that are no class."""
    _, targets, predicted, confidence = columns
    return confidence.where((predicted != targets) & (targets >= 0), -1.0)


def keep_highest(earlier: Sequence[Tensor], columns: Columns, count: int) -> Columns:
    """Return the samples that are highest in the last column, of earlier ones and of a batch; waits for no GPU."""
    joined = tuple(map(torch.cat, zip(earlier, columns, strict=True))) if earlier else columns
    places = joined[-1].topk(min(count, len(joined[-1]))).indices
    return tuple(column[places] for column in joined)


def scaled(image: Tensor) -> Tensor:
    """Return an image with its values from 0, the smallest, to 1."""
    image = image.float()
    return (image - image.min()) / (image.max() - image.min()).clamp(min=1e-12)
