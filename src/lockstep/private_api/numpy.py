"""Private layout of numpy: how much memory the state of its global generator takes."""

import ctypes

import numpy as np

MT19937_BYTES = 624 * 4 + 4
"""624 words and the place among them."""


def generator_memory() -> bytes | None:
    """The state of the global generator, a cached Gaussian number aside.

    None for another generator than numpy's own, and in a version without these names: then its state is asked for as a
    whole, which takes 50 µs.
    """
    generator = getattr(np.random, "get_bit_generator", lambda: None)()
    if type(generator) is not np.random.MT19937 or not hasattr(generator, "ctypes"):
        return None
    return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES)
