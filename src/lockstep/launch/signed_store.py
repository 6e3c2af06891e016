"""A store whose values carry an HMAC: for a port to which others may write, too.

Each value is stored behind its HMAC-SHA-256, which is bound to its key. A value without a valid one counts as missing.
So whoever reaches the store may delete and overwrite, and the ranks then time out, but nobody without the secret can
give them a value. An older value of the same key could be put back: keys here are written once.
"""

import hmac
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]

from lockstep.launch.rendezvous import POLL_INTERVAL, keep_alive

HMAC_DIGITS = 64
"""Length of an HMAC-SHA-256 in hexadecimal, in front of each value."""


def compute_hmac(secret: bytes, *fields: bytes) -> bytes:
    """Return the HMAC of several fields, each with its length, so that moving a boundary between two changes it."""
    framed = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    return hmac.new(secret, framed, "sha256").hexdigest().encode()


class SignedStore(Store):
    """`inner`, read and written with the secret. gloo and nccl call these methods."""

    def __init__(self, inner: Any, secret: bytes, timeout: timedelta) -> None:
        super().__init__()
        self.inner, self.secret = inner, secret
        self.set_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self.inner.set(key, self._sign(key, value))

    def get(self, key: str) -> bytes:
        for _ in self._poll([key], self.limit):
            if (value := self._value(key)) is not None:
                return value
        raise AssertionError("_poll ends with an error")

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._value(key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for _ in self._poll(keys, timeout or self.limit):
            if self.check(keys):
                return

    def add(self, key: str, amount: int) -> int:
        """Store (total, UUID): the UUID tells two equal concurrent additions apart."""
        for _ in self._poll([key], self.limit):
            before = self._value(key) or b""
            total = int(before.split()[0] if before else 0) + amount
            after = f"{total} {uuid.uuid4().hex}"
            if self.compare_set(key, before.decode(), after) == after.encode():
                return total
        raise AssertionError("_poll ends with an error")

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        before = self._sign(key, expected).decode() if expected else ""
        stored = self.inner.compare_set(key, before, self._sign(key, desired).decode())
        return self._verify(key, stored) or b""

    def delete_key(self, key: str) -> bool:
        return bool(self.inner.delete_key(key))

    def has_extended_api(self) -> bool:
        """Return False: no multi_get, multi_set, append."""
        return False

    def clone(self) -> "SignedStore":
        clone = SignedStore(self.inner.clone(), self.secret, self.limit)
        keep_alive(clone)
        return clone

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        self.limit = timeout
        self.inner.set_timeout(timeout)

    def _poll(self, keys: Sequence[str], timeout: timedelta) -> Iterator[None]:
        """Yield at each attempt.

        Raises:
            DistStoreError: the timeout is over.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while time.monotonic() < deadline:
            yield
            time.sleep(POLL_INTERVAL)
        raise DistStoreError(f"timed out after {timeout.total_seconds():g} s waiting for {', '.join(keys)}")

    def _sign(self, key: str, value: str | bytes) -> bytes:
        plain = value.encode() if isinstance(value, str) else bytes(value)
        return compute_hmac(self.secret, key.encode(), plain) + plain

    def _value(self, key: str) -> bytes | None:
        """Return the value of a key, or None if it is missing or has no valid HMAC."""
        return self._verify(key, self.inner.get(key)) if self.inner.check([key]) else None

    def _verify(self, key: str, signed: bytes) -> bytes | None:
        mac, plain = signed[:HMAC_DIGITS], signed[HMAC_DIGITS:]
        authentic = hmac.compare_digest(mac, compute_hmac(self.secret, key.encode(), plain))
        return plain if authentic else None
