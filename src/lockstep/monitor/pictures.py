"""Pictures of an epoch: the confusion matrix, the worst samples, the filters of the first layer.

They are drawn pixel by pixel: a plotting library would take longer than an epoch of a small net.
"""

from collections.abc import Sequence
from functools import cache
from math import ceil, prod, sqrt

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from lockstep.loggers.tensorboard import TensorBoard

INK, PAPER, BLUE = (20, 20, 20), (255, 255, 255), (8, 64, 129)
NUMBERED = 20
"""Classes up to which each count is written."""
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


@cache
def font_of_all() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    """Read once: that takes longer than a picture."""
    return ImageFont.load_default()


def confusion_picture(counts: Tensor) -> np.ndarray:
    """Counts (true, predicted) as a chart (height, width, 3), a cell's colour the share of its row."""
    classes = len(counts)
    cell = 28 if classes <= NUMBERED else max(3, 560 // classes)
    side, edge = cell * classes, 44
    share = (counts.double() / counts.sum(1, keepdim=True).clamp(min=1)).numpy()
    colours = np.asarray(PAPER) + share[..., None] * (np.asarray(BLUE) - np.asarray(PAPER))
    board = np.full((side + edge, side + edge, 3), 255, np.uint8)
    board[edge:, edge:] = np.kron(colours.astype(np.uint8), np.ones((cell, cell, 1), np.uint8))
    picture = Image.fromarray(board)
    draw, font = ImageDraw.Draw(picture), font_of_all()
    draw.text((edge, 4), "predicted", INK, font)
    draw.text((2, edge - 14), "true", INK, font)
    every = 1 if classes <= NUMBERED else ceil(classes / 20)
    for label in range(0, classes, every):
        middle = edge + label * cell + cell // 2 - 6
        draw.text((middle, edge - 16), str(label), INK, font)
        draw.text((edge - 22, middle), str(label), INK, font)
    if classes <= NUMBERED:
        for (row, column), count in np.ndenumerate(counts.numpy()):
            if count:
                at = edge + column * cell + 5, edge + row * cell + cell // 2 - 7
                draw.text(at, str(count), PAPER if share[row, column] > 0.5 else INK, font)
    return np.asarray(picture)


def samples_picture(images: Tensor, captions: Sequence[str]) -> np.ndarray:
    """Draw images (n, 1 or 3, h, w) in a square, each with a line of words below it."""
    cells = [scaled(image, 64) for image in images]
    board, places = grid(cells, cells[0].shape[0] + 18, max(cells[0].shape[1], 72) + 8)
    picture = Image.fromarray(board)
    draw, font = ImageDraw.Draw(picture), font_of_all()
    for (top, left), words in zip(places, captions, strict=True):
        draw.text((left, top + cells[0].shape[0] + 2), words, INK, font)
    return np.asarray(picture)


def filters_picture(weights: Tensor) -> np.ndarray:
    """Draw weights (n, 1 or 3, h, w) side by side, each from its least to its largest."""
    cells = [scaled(weight, 28) for weight in weights]
    return grid(cells, cells[0].shape[0] + 2, cells[0].shape[1] + 2)[0]


def grid(cells: Sequence[np.ndarray], height: int, width: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Put cells into a square of places of this size; return it, and the top and left of each place."""
    columns = ceil(sqrt(len(cells)))
    board = np.full((height * ceil(len(cells) / columns), width * columns, 3), 255, np.uint8)
    places = [(index // columns * height, index % columns * width) for index in range(len(cells))]
    for (top, left), cell in zip(places, cells, strict=True):
        board[top : top + cell.shape[0], left : left + cell.shape[1]] = cell
    return board, places


def scaled(image: Tensor, size: int) -> np.ndarray:
    """(1 or 3, h, w) of any numbers as (height, width, 3) bytes, each pixel a square, about `size` high."""
    own = image.detach().float().cpu()
    low, high = own.min(), own.max()
    pixels = ((own - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0)
    square = max(1, round(size / pixels.shape[0]))
    return pixels.numpy().repeat(square, 0).repeat(square, 1)
