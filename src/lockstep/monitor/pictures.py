"""Pictures of an epoch: the confusion matrix, the worst samples, the filters of the first layer.

They are drawn with PIL: a plotting library would take longer than an epoch of a small net.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from math import ceil, prod, sqrt
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from lockstep.config_error import truncate

INK, PAPER, BLUE = (20, 20, 20), (255, 255, 255), (8, 64, 129)
NUMBERED = 20  # classes up to which each count is written
COLOURS = (1, 3)  # channels of a picture
MAX_FILTERS = 64
EDGE, CELL = 44, 28  # pixels left of and above the confusion counts, and of a cell with a count
MAX_LETTERS, SHORT, LETTER = 16, 3, 7  # letters of a label, those that fit above a cell, and the width of one in pixels


def pictures_of(
    counts: Tensor | None,
    worst: tuple[Tensor, ...] | None,
    net: nn.Module | None,
    shape: tuple[int, ...],
    labels: Sequence[str],
) -> dict[str, np.ndarray]:
    """Return pictures (height, width, 3) of bytes, by name, for samples of this shape.

    Args:
        counts: the confusion counts of all ranks.
        worst: inputs, targets, predicted classes and confidence of the most confident errors.
        net: the net whose filters are shown; None if it is sharded.
        labels: what to call the classes; a net may predict numbers beyond them.
    """
    pictures = {}
    if counts is not None:
        pictures["val/confusion"] = confusion_picture(counts.cpu(), labels)
    if worst is not None:
        inputs, targets, predicted, confidence = (tensor.cpu() for tensor in worst)
        wrong = int((confidence >= 0).sum())
        if wrong and inputs.dim() == 4 and inputs.shape[1] in COLOURS:
            rows = zip(targets[:wrong].tolist(), predicted.tolist(), confidence.tolist(), strict=False)
            names = [truncate(label, MAX_LETTERS) for label in labels]
            beyond = dict(enumerate(names))  # a net may predict numbers without a name
            captions = [
                f"{beyond.get(true, true)} as {beyond.get(other, other)}, {sure:.0%}" for true, other, sure in rows
            ]
            pictures["val/worst"] = grid(inputs[:wrong], 64, captions)
    filters = None if net is None else first_filters(net, shape)
    if filters is not None:
        pictures["weights/first layer"] = grid(filters[:MAX_FILTERS], 28)
    return pictures


@cache
def font() -> ImageFont.FreeTypeFont:
    """Return the font of matplotlib, which has the letters of most languages; PIL's has those of English."""
    package = Path(str(getattr(find_spec("matplotlib"), "origin", ""))).parent
    return ImageFont.truetype(package / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf", 10)


def first_filters(net: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
    """Return weights (n, channels, h, w) of the first layer, linear or convolution, or None if they are no pictures."""
    first = next((module for module in net.modules() if isinstance(getattr(module, "weight", None), Tensor)), None)
    if isinstance(first, nn.Conv2d) and first.weight.shape[1] in COLOURS and max(first.kernel_size) > 1:
        return first.weight
    if isinstance(first, nn.Linear) and len(shape) == 3 and shape[0] in COLOURS and first.in_features == prod(shape):
        return first.weight.view(-1, *shape)
    return None


def confusion_picture(counts: Tensor, labels: Sequence[str]) -> np.ndarray:
    """Draw counts (true, predicted) as a chart (height, width, 3); a cell's colour is the share of its row.

    Labels that are wider than a cell are written upwards above the columns.
    """
    classes, names = len(counts), [truncate(label, MAX_LETTERS) for label in labels]
    letters = max(map(len, names))
    edge, upwards = max(EDGE, letters * LETTER + 12), letters > SHORT
    cell = CELL if classes <= NUMBERED else max(3, 560 // classes)
    share = (counts.double() / counts.sum(1, keepdim=True).clamp(min=1)).numpy()
    colours = np.asarray(PAPER) + share[..., None] * (np.asarray(BLUE) - np.asarray(PAPER))
    chart = Image.fromarray(colours.astype(np.uint8).repeat(cell, 0).repeat(cell, 1))
    top = edge + 14 if upwards else edge
    picture = Image.new("RGB", (chart.width + edge, chart.height + top), PAPER)
    picture.paste(chart, (edge, top))
    draw = ImageDraw.Draw(picture)
    draw.text((edge, 4), "predicted", INK, font())
    draw.text((2, top - 14), "true", INK, font())
    for label in range(0, classes, ceil(classes / NUMBERED)):
        middle = label * cell + cell // 2 - 6
        draw.text((edge - 8 - letters * LETTER if upwards else edge - 22, top + middle), names[label], INK, font())
        if upwards:
            name = Image.new("RGB", (letters * LETTER, 14), PAPER)
            ImageDraw.Draw(name).text((0, 0), names[label], INK, font())
            picture.paste(name.rotate(90, expand=True), (edge + middle, top - 4 - letters * LETTER))
        else:
            draw.text((edge + middle, top - 16), names[label], INK, font())
    for (row, column), count in np.ndenumerate(counts.numpy() if classes <= NUMBERED else np.empty((0, 0))):
        at = edge + column * cell + 5, top + row * cell + cell // 2 - 7
        draw.text(at, str(count) if count else "", PAPER if share[row, column] > 0.5 else INK, font())
    return np.asarray(picture)


def grid(images: Tensor, size: int, captions: Sequence[str] = ()) -> np.ndarray:
    """Draw images (n, 1 or 3, h, w) in a square, about `size` pixels high, each with its caption below it."""
    scale = max(1, round(size / images.shape[2]))
    letters = max((ceil(font().getlength(caption)) + 6 for caption in captions), default=0)
    height, width = images.shape[2] * scale + 18, max(images.shape[3] * scale, letters) + 2
    columns = ceil(sqrt(len(images)))
    picture = Image.new("RGB", (width * columns, height * ceil(len(images) / columns)), PAPER)
    draw = ImageDraw.Draw(picture)
    for index, image in enumerate(images.detach().float().cpu()):
        left, top = index % columns * width, index // columns * height
        pixels = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-12) * 255
        cell = pixels.to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0).numpy()
        picture.paste(Image.fromarray(cell.repeat(scale, 0).repeat(scale, 1)), (left, top))
        draw.text((left, top + len(cell) * scale + 2), captions[index] if captions else "", INK, font())
    return np.asarray(picture)
