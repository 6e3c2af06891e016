"""Picture files, without torchvision, whose import takes two seconds."""

import numpy as np
from PIL import Image

from lockstep.config_error import ConfigError

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")


def read_image(path: str, mode: str = "RGB") -> Image.Image:
    """Return a picture in a mode of PIL: L, which is grey, or RGB."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):  # 16 bits, which `convert` would cut at 255
                return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert(mode)
            return image.convert(mode)
    except OSError as error:
        raise ConfigError(f"data: {path} is no image that can be read ({error}); remove it.") from None
