"""The rendezvous of ranks that torchrun, SLURM or mpirun started: they share a port, to which anybody may write.

Rank 0 writes a secret to a file that only its own user can read. Each other rank sends a nonce through the store, and
rank 0 replies with the file's path and an HMAC over both. So a rank trusts a reply if the file belongs to its own user
alone and the HMAC fits. Every other value at the port is signed with the secret (signed_store.py).
"""

import hmac
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.config_error import config_error
from lockstep.disk import temporary_errors_as_config_errors, write_error
from lockstep.errors import RendezvousTimeout
from lockstep.launch.open_rendezvous import RETRY, PortRendezvous, users_file, users_port
from lockstep.launch.peers import timeout_text
from lockstep.launch.private_dir import private_folder
from lockstep.launch.rendezvous import KEY, POLL_INTERVAL, Rendezvous
from lockstep.launch.signed_store import HMAC_DIGITS, compute_hmac
from lockstep.launch.topology import RankContext
from lockstep.world import World

SECRET_HEADER = b"secret of a Lockstep rendezvous\n"
"""Stands before the digits, so that no other file of the user's is read as a secret."""
NONCE = re.compile(rb"[0-9a-f]{32}")
MAX_REPLY = 4096
"""Bytes of a reply: a path and an HMAC."""
SECRET = "secret"
"""The name of the secret's file."""


class AuthenticationError(Exception):
    """A reply in the store is not rank 0's. The message says why, for the RendezvousTimeout that may follow."""


@contextmanager
def open_external_rendezvous(world: World, context: RankContext) -> Iterator[Rendezvous]:
    """Open the rendezvous of ranks that an external launcher started, which set MASTER_ADDR and MASTER_PORT.

    Raises:
        RendezvousTimeout: rank 0 did not reply in time, or its secret cannot be read here.
        ConfigError: the file or port cannot be used, or the secret cannot be written.
    """
    url = world.process_group.init_method
    if not world.distributed:
        yield Rendezvous()
    elif url.startswith("file://"):
        with users_file(url, create=False, remove=context.rank == 0) as rendezvous:
            yield rendezvous
    else:
        if url == "file" and world.num_nodes > 1:
            hint = f"{KEY}=file:///SHARED/PATH"
            raise config_error(KEY, "file", "ranks on several machines share no private file", hint)
        with users_port(world, context) as endpoint, exchange_secret(world, context, endpoint) as rendezvous:
            yield rendezvous


@contextmanager
def exchange_secret(world: World, context: RankContext, endpoint: PortRendezvous) -> Iterator[Rendezvous]:
    """Yield the rendezvous at `endpoint` with a secret that all ranks know."""
    deadline = time.monotonic() + world.process_group.timeout
    store = endpoint.connect(world, deadline)
    if context.rank:
        yield replace(endpoint, secret=request_secret(world, context, endpoint, store, deadline))
        return
    secret = secrets.token_hex(HMAC_DIGITS // 2).encode()
    path = write_secret(world, secret)
    remove = partial(shutil.rmtree, path.parent, ignore_errors=True)
    try:
        reply = partial(reply_to_all, world, context, endpoint, store, str(path), secret)
        yield replace(endpoint, secret=secret, while_waiting=reply, when_joined=remove)
    finally:
        remove()


def write_secret(world: World, secret: bytes) -> Path:
    """Write the secret to a new folder that no other user can open: temporary, or the run's for several machines.

    Raises:
        ConfigError: there is no room for it.
    """

    def write(folder: str) -> Path:
        path = Path(folder) / SECRET
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(SECRET_HEADER + secret)
        return path

    if world.num_nodes == 1:
        with temporary_errors_as_config_errors(private_folder()):
            return write(tempfile.mkdtemp(dir=private_folder()))
    try:
        Path(world.folder).mkdir(parents=True, exist_ok=True)
        return write(tempfile.mkdtemp(prefix=".rendezvous-", dir=world.folder))
    except OSError as error:
        raise write_error(world.folder, error) from None


def reply_to_all(
    world: World, context: RankContext, endpoint: PortRendezvous, store: Store, path: str, secret: bytes
) -> None:
    """Reply to every nonce in the store, as rank 0."""
    for rank in range(1, context.world_size):
        key = f"nonce of rank {rank}"
        if store.check([key]) and NONCE.fullmatch(nonce := store.get(key)):
            mac = reply_hmac(secret, nonce.decode(), path, world, endpoint)
            store.set(f"reply to {nonce.decode()}", json.dumps([path, mac]))


def request_secret(
    world: World, context: RankContext, endpoint: PortRendezvous, store: Store, deadline: float
) -> bytes:
    """Return the secret from the file that rank 0's reply to a new nonce names.

    Keys of earlier ranks may be in an agent's store. The number of restarts would not tell them apart: an agent that
    restarts its ranks because another machine's agent does so does not count that.

    Raises:
        RendezvousTimeout: there was no valid reply before the deadline.
    """
    nonce, reason, send_again = uuid.uuid4().hex, "", 0.0
    while time.monotonic() < deadline:
        if time.monotonic() > send_again:  # repeatedly: it may be overwritten
            store.set(f"nonce of rank {context.rank}", nonce)
            send_again = time.monotonic() + RETRY
        if store.check([f"reply to {nonce}"]):
            try:
                return verify_reply(world, endpoint, nonce, store.get(f"reply to {nonce}"))
            except AuthenticationError as error:  # rank 0 may yet reply
                reason = f": {error}"
        time.sleep(POLL_INTERVAL)
    raise RendezvousTimeout(f"rank 0 of {context.world_size} did not join within {timeout_text(world)}{reason}")


def verify_reply(world: World, endpoint: PortRendezvous, nonce: str, reply: bytes) -> bytes:
    """Return the secret from the file that a reply names.

    Raises:
        AuthenticationError: the reply is malformed, its HMAC is wrong, or the file is not this user's alone.
    """
    forged = AuthenticationError("what the store says was not written by rank 0")
    try:
        path, mac = json.loads(reply if len(reply) <= MAX_REPLY else b"")
        path, mac = str(path), str(mac).encode()
        path.encode()  # half a surrogate pair is valid text to JSON alone
    except (ValueError, TypeError, RecursionError):
        raise forged from None
    secret = read_secret(Path(path))
    if not hmac.compare_digest(mac, reply_hmac(secret, nonce, path, world, endpoint).encode()):
        raise forged
    return secret


def reply_hmac(secret: bytes, nonce: str, path: str, world: World, endpoint: PortRendezvous) -> str:
    """Return an HMAC bound to nonce and run, so that a reply of another run of the same user cannot be replayed."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    fields = (nonce, path, str(endpoint.port), str(world.world_size), str(world.num_nodes), run)
    return compute_hmac(secret, *(field.encode() for field in fields)).decode()


def read_secret(path: Path) -> bytes:
    """Return the secret in a file that only its owner, who is this process's user, can read.

    Raises:
        AuthenticationError: there is no such file here, or it is another kind of file.
    """
    shown = ascii(str(path))[:200]
    hint = "on several machines hydra.run.dir=FOLDER has to lie on a disk that all share, for one user"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise AuthenticationError(f"its secret cannot be read here ({shown}: {reason}); {hint}") from None
    try:
        status = os.fstat(descriptor)
        private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        content = os.read(descriptor, len(SECRET_HEADER) + HMAC_DIGITS + 1) if private else b""
    finally:
        os.close(descriptor)
    if len(content) != len(SECRET_HEADER) + HMAC_DIGITS or not content.startswith(SECRET_HEADER):
        raise AuthenticationError(f"{shown} is no secret of this user's; {hint}")
    return content.removeprefix(SECRET_HEADER)
