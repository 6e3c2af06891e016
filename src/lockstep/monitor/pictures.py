"""Pictures for people, drawn pixel by pixel: a plotting library would take longer than an epoch of a small net."""

from collections.abc import Sequence
from functools import cache
from math import ceil, sqrt

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

INK, PAPER, BLUE = (20, 20, 20), (255, 255, 255), (8, 64, 129)
NUMBERED = 20
"""Classes up to which each count is written."""


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
