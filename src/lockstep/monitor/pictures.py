"""Pictures of an epoch: the confusion matrix, the worst samples, the filters of the first layer.

They are drawn with PIL: a plotting library would take longer than an epoch of a small net.
"""

from collections.abc import Sequence
from math import ceil, prod, sqrt

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

INK, PAPER, BLUE = (20, 20, 20), (255, 255, 255), (8, 64, 129)
NUMBERED = 20
"""Classes up to which each count is written."""
COLOURS = (1, 3)
"""Channels of a picture."""
MAX_FILTERS = 64
EDGE, CELL = 44, 28
"""Pixels left of and above the confusion counts, and of a cell with a count."""


def pictures_of(
    counts: Tensor | None, worst: tuple[Tensor, ...] | None, net: nn.Module | None, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return pictures (height, width, 3) of bytes, by name, for samples of this shape.

    Args:
        counts: the confusion counts of all ranks.
        worst: inputs, targets, predicted classes and confidence of the most confident errors.
        net: the net whose filters are shown; None if it is sharded.
    """
    pictures = {}
    if counts is not None:
        pictures["val/confusion"] = confusion_picture(counts.cpu())
    if worst is not None:
        inputs, targets, predicted, confidence = (tensor.cpu() for tensor in worst)
        wrong = int((confidence >= 0).sum())
        if wrong and inputs.dim() == 4 and inputs.shape[1] in COLOURS:
            rows = zip(targets[:wrong].tolist(), predicted.tolist(), confidence.tolist(), strict=False)
            captions = [f"{true} as {other}, {sure:.0%}" for true, other, sure in rows]
            pictures["val/worst"] = grid(inputs[:wrong], 64, captions)
    filters = None if net is None else first_filters(net, shape)
    if filters is not None:
        pictures["weights/first layer"] = grid(filters[:MAX_FILTERS], 28)
    return pictures


def first_filters(net: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
    """Return weights (n, channels, h, w) of the first layer, linear or convolution, or None if they are no pictures."""
    first = next((module for module in net.modules() if isinstance(getattr(module, "weight", None), Tensor)), None)
    if isinstance(first, nn.Conv2d) and first.weight.shape[1] in COLOURS and max(first.kernel_size) > 1:
        return first.weight
    if isinstance(first, nn.Linear) and len(shape) == 3 and shape[0] in COLOURS and first.in_features == prod(shape):
        return first.weight.view(-1, *shape)
    return None


def confusion_picture(counts: Tensor) -> np.ndarray:
    """Draw counts (true, predicted) as a chart (height, width, 3); a cell's colour is the share of its row."""
    classes = len(counts)
    cell = CELL if classes <= NUMBERED else max(3, 560 // classes)
    share = (counts.double() / counts.sum(1, keepdim=True).clamp(min=1)).numpy()
    colours = np.asarray(PAPER) + share[..., None] * (np.asarray(BLUE) - np.asarray(PAPER))
    chart = Image.fromarray(colours.astype(np.uint8).repeat(cell, 0).repeat(cell, 1))
    picture = Image.new("RGB", (chart.width + EDGE, chart.height + EDGE), PAPER)
    picture.paste(chart, (EDGE, EDGE))
    draw = ImageDraw.Draw(picture)
    draw.text((EDGE, 4), "predicted", INK)
    draw.text((2, EDGE - 14), "true", INK)
    for label in range(0, classes, ceil(classes / NUMBERED)):
        middle = EDGE + label * cell + cell // 2 - 6
        draw.text((middle, EDGE - 16), str(label), INK)
        draw.text((EDGE - 22, middle), str(label), INK)
    for (row, column), count in np.ndenumerate(counts.numpy() if classes <= NUMBERED else np.empty((0, 0))):
        at = EDGE + column * cell + 5, EDGE + row * cell + cell // 2 - 7
        draw.text(at, str(count) if count else "", PAPER if share[row, column] > 0.5 else INK)
    return np.asarray(picture)


def grid(images: Tensor, size: int, captions: Sequence[str] = ()) -> np.ndarray:
    """Draw images (n, 1 or 3, h, w) in a square, about `size` pixels high, each with its caption below it."""
    scale = max(1, round(size / images.shape[2]))
    height, width = images.shape[2] * scale + 18, max(images.shape[3] * scale, 80 if captions else 0) + 2
    columns = ceil(sqrt(len(images)))
    picture = Image.new("RGB", (width * columns, height * ceil(len(images) / columns)), PAPER)
    draw = ImageDraw.Draw(picture)
    for index, image in enumerate(images.detach().float().cpu()):
        left, top = index % columns * width, index // columns * height
        pixels = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-12) * 255
        cell = pixels.to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0).numpy()
        picture.paste(Image.fromarray(cell.repeat(scale, 0).repeat(scale, 1)), (left, top))
        draw.text((left, top + len(cell) * scale + 2), captions[index] if captions else "", INK)
    return np.asarray(picture)
