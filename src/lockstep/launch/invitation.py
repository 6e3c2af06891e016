"""How ranks that were started from outside find each other at a store to which anybody may write.

Rank 0 makes a secret, in a file that only its own user can read, and tells at the store where it lies. The others
believe that for two reasons: the file is their own user's alone, and the answer is signed with what it holds, for the
name that they came under. On one machine they then leave the store and meet at a file beside the secret. Ranks on
several machines stay, and take from it only what is signed.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]

from lockstep.disk import disk_errors_as_config_errors, not_written, temporary_errors_as_config_errors
from lockstep.errors import RendezvousTimeout
from lockstep.launch.private_dir import private_folder
from lockstep.launch.signed_store import DIGITS, POLL_INTERVAL, signature
from lockstep.launch.store import RETRY, Rendezvous, find_store, nobody, timeout_text
from lockstep.launch.topology import RankContext
from lockstep.world import World

HEAD = b"secret of a Lockstep rendezvous\n"
"""In front of the digits, so that no other file of the user's is taken for a secret."""
NAME = re.compile(rb"[0-9a-f]{32}")
LONGEST = 4096
"""Bytes of an answer: a path and a proof."""
SHORTLY = timedelta(seconds=1)
"""For what was at the store a moment ago: whoever else can reach it may have taken it away."""
GROUP, SECRET = "group", "secret"
"""Names of two files: where ranks of one machine meet, and what proves that they were invited."""


class NotInvited(Exception):
    """An answer at the store that proves nothing. The message says why, for the one who waits in vain."""


@contextmanager
def invited(world: World, context: RankContext, door: Rendezvous) -> Iterator[Rendezvous]:
    """Where the ranks meet that come to the store at `door`.

    Raises:
        RendezvousTimeout: rank 0 did not answer in time, or what it told cannot be read here.
        ConfigError: there is no place for the secret.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store = find_store(world, door, deadline)
    if context.rank:
        yield meeting_at(world, door, *answer(world, context, door, store, deadline))
        return
    folder = own_folder(world)
    try:
        path, secret = folder / SECRET, secrets.token_hex(DIGITS // 2).encode()
        private = world.num_nodes == 1
        with temporary_errors_as_config_errors(folder) if private else disk_errors_as_config_errors(world.folder):
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(HEAD + secret)

        def invite() -> None:
            for rank in range(1, context.world_size):
                key = f"rank {rank} comes as"
                if NAME.fullmatch(name := at_once(store, key)):
                    proof = proof_of(secret, name.decode(), str(path), world, door)
                    store.set(f"{name.decode()} goes to", json.dumps([str(path), proof]))

        yield meeting_at(world, door, str(path), secret, invite)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def meeting_at(
    world: World, door: Rendezvous, path: str, secret: bytes, invite: Callable[[], None] = nobody
) -> Rendezvous:
    """A file of the same folder on one machine, else the door itself."""
    if world.num_nodes == 1:
        return Rendezvous(str(Path(path).with_name(GROUP)), door.address, door.port, invite=invite)
    folder = Path(path).parent
    return replace(door, secret=secret, invite=invite, met=lambda: shutil.rmtree(folder, ignore_errors=True))


def own_folder(world: World) -> Path:
    """A new one that nobody else can open: of this machine, or where all machines see it, in the run's folder."""
    if world.num_nodes == 1:
        return Path(tempfile.mkdtemp(dir=private_folder()))
    try:
        Path(world.folder).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".rendezvous-", dir=world.folder))
    except OSError as error:
        raise not_written(world.folder, error) from None


def answer(world: World, context: RankContext, door: Rendezvous, store: Store, deadline: float) -> tuple[str, bytes]:
    """Where the secret lies, and the secret: what rank 0 says to the name under which this rank comes.

    A name of its own for each rank, since at an agent's store earlier ranks may have met, whom the number of restarts
    would not tell apart: an agent that starts its ranks anew because another machine's has done so does not count it.
    """
    name, why, again = uuid.uuid4().hex, "", 0.0
    while time.monotonic() < deadline:
        if time.monotonic() > again:
            store.set(f"rank {context.rank} comes as", name)  # again and again: it may be overwritten
            again = time.monotonic() + RETRY
        if said := at_once(store, f"{name} goes to"):
            try:
                return believed(world, door, name, said)
            except NotInvited as doubt:  # rank 0 may yet answer
                why = str(doubt)
        time.sleep(POLL_INTERVAL)
    missing = f"rank 0 of {context.world_size} did not join within {timeout_text(world)}"
    raise RendezvousTimeout(f"{missing}: {why}" if why else missing)


def at_once(store: Store, key: str) -> bytes:
    """What is there now; nothing, else. No wait for a key that is deleted as it is asked for."""
    if not store.check([key]):
        return b""
    patience = store.timeout  # type: ignore[attr-defined]
    store.set_timeout(SHORTLY)
    try:
        return store.get(key)
    except DistStoreError:
        return b""
    finally:
        store.set_timeout(patience)


def believed(world: World, door: Rendezvous, name: str, said: bytes) -> tuple[str, bytes]:
    """The path and the secret in an answer that proves itself.

    Raises:
        NotInvited: it does not.
    """
    forged = NotInvited("what the store says was not written by rank 0")
    try:
        path, proof = json.loads(said if len(said) <= LONGEST else b"")
        path, proof = str(path), str(proof).encode()
        path.encode()  # half a surrogate pair is text to JSON alone
    except (ValueError, TypeError, RecursionError):
        raise forged from None
    secret = secret_at(Path(path))
    if not hmac.compare_digest(proof, proof_of(secret, name, path, world, door).encode()):
        raise forged
    return path, secret


def proof_of(secret: bytes, name: str, path: str, world: World, door: Rendezvous) -> str:
    """That rank 0 of this run answers, and not of another of the same user's, from where someone fetched it."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    about = (name, path, str(door.port), str(world.world_size), str(world.num_nodes), run)
    return signature(secret, *(part.encode() for part in about)).decode()


def secret_at(path: Path) -> bytes:
    """What a file holds that its owner alone, who is this process's user, can read.

    Raises:
        NotInvited: there is no such file here, or it is another kind of file.
    """
    where = "on several machines hydra.run.dir=FOLDER has to lie on a disk that all share, for one user"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no path"
        raise NotInvited(f"its secret cannot be read here ({ascii(str(path))[:200]}: {why}); {where}") from None
    try:
        about = os.fstat(descriptor)
        own = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
        held = os.read(descriptor, len(HEAD) + DIGITS + 1) if own else b""
    finally:
        os.close(descriptor)
    if len(held) != len(HEAD) + DIGITS or not held.startswith(HEAD):
        raise NotInvited(f"{ascii(str(path))[:200]} is no secret of this user's; {where}")
    return held.removeprefix(HEAD)
