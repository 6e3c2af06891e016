"""A store to which others may write, too: only what was signed with the run's secret is taken from it.

Each value lies there behind its HMAC-SHA-256, which is bound to its key. What has none, or another, counts as not
there. So whoever reaches the store may delete and overwrite, and the ranks then wait in vain, but cannot be told
anything. An older value of the same key could be put back: keys here are written once.
"""

import ctypes
import hmac
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]

DIGITS = 64
"""Of an HMAC-SHA-256 in hexadecimal, in front of each value."""
POLL_INTERVAL = 0.005
"""Seconds between two looks for a key."""


def immortal(store: Store) -> Store:
    """Keep a store until the process ends: torch's threads may still use it when Python has forgotten it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
    return store


def signature(secret: bytes, *parts: bytes) -> bytes:
    """Of several parts, of which none can be taken for a piece of another."""
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(secret, framed, "sha256").hexdigest().encode()


class SignedStore(Store):
    """`inner` as it is seen by those who know the secret. gloo and nccl use it through these methods."""

    def __init__(self, inner: Any, secret: bytes, limit: timedelta) -> None:
        super().__init__()
        self.inner, self.secret = inner, secret
        self.set_timeout(limit)

    def set(self, key: str, value: str | bytes) -> None:
        self.inner.set(key, self._signed(key, value))

    def get(self, key: str) -> bytes:
        for _ in self._looks([key], self.limit):
            if (value := self._value(key)) is not None:
                return value
        raise AssertionError("looks end with an error")

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._value(key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for _ in self._looks(keys, self.limit if timeout is None else timeout):
            if self.check(keys):
                return

    def add(self, key: str, amount: int) -> int:
        """A counter lies there beside a mark of who wrote it last, or two who add the same could not tell who did."""
        for _ in self._looks([key], self.limit):
            now = self._value(key) or b""
            total = int(now.split()[0] if now else 0) + amount
            wanted = f"{total} {uuid.uuid4().hex}"
            if self.compare_set(key, now.decode(), wanted) == wanted.encode():
                return total
        raise AssertionError("looks end with an error")

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        before = self._signed(key, expected).decode() if expected else ""
        found = self.inner.compare_set(key, before, self._signed(key, desired).decode())
        return self._opened(key, found) or b""

    def delete_key(self, key: str) -> bool:
        return bool(self.inner.delete_key(key))

    def num_keys(self) -> int:
        return int(self.inner.num_keys())

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> "SignedStore":
        clone = SignedStore(self.inner.clone(), self.secret, self.limit)
        immortal(clone)
        return clone

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        self.limit = timeout
        self.inner.set_timeout(timeout)

    def _looks(self, keys: Sequence[str], limit: timedelta) -> Iterator[None]:
        """Times to look for keys.

        Raises:
            DistStoreError: the limit is over.
        """
        deadline = time.monotonic() + limit.total_seconds()
        while time.monotonic() < deadline:
            yield
            time.sleep(POLL_INTERVAL)
        raise DistStoreError(f"timed out after {limit.total_seconds():g} s waiting for {', '.join(keys)}")

    def _signed(self, key: str, value: str | bytes) -> bytes:
        plain = value.encode() if isinstance(value, str) else bytes(value)
        return signature(self.secret, key.encode(), plain) + plain

    def _value(self, key: str) -> bytes | None:
        """None where there is none that was signed."""
        return self._opened(key, self.inner.get(key)) if self.inner.check([key]) else None

    def _opened(self, key: str, found: bytes) -> bytes | None:
        signed, plain = found[:DIGITS], found[DIGITS:]
        genuine = hmac.compare_digest(signed, signature(self.secret, key.encode(), plain))
        return plain if genuine else None
