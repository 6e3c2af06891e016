"""Bytes from an address within a bounded time."""

import time
import urllib.request

DOWNLOAD_TIMEOUT = 15
"""Seconds without a byte after which it is given up."""
DOWNLOAD_LIMIT = 300
"""Seconds that one file has, however it trickles in."""


def fetched(url: str, most: int) -> bytes:
    """The first `most` bytes behind an address.

    Raises:
        OSError: no answer, or not within DOWNLOAD_LIMIT.
    """
    content, deadline = bytearray(), time.monotonic() + DOWNLOAD_LIMIT
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
        while len(content) < most and (part := answer.read1(most - len(content))):
            content += part
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(content)} bytes within {DOWNLOAD_LIMIT} s")
    return bytes(content)
