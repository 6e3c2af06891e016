"""The store at which the ranks rendezvous: connect to it, and wait until every rank has joined, or time out."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.errors import RendezvousTimeout
from lockstep.launch.peers import publish_pid
from lockstep.launch.signed_store import POLL_INTERVAL, SignedStore, immortal, signature
from lockstep.launch.topology import RankContext
from lockstep.launch.torchelastic_agent import agent_hosts_store
from lockstep.world import World

KEY = "process_group.init_method"
RETRY = 0.1
"""Seconds between two knocks at a door that is not open yet; a knock itself may take ten times as long."""


def nobody() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Rendezvous:
    """A file, which is its owner's alone, or an address and a port, where only what `secret` signs is believed.

    Beside a file the address is only what MASTER_ADDR and MASTER_PORT say. `invite` is called while ranks are missing,
    and `met` when all are there.
    """

    path: str = ""
    address: str = ""
    port: int = 0
    secret: bytes = field(default=b"", repr=False)
    invite: Callable[[], None] = nobody
    met: Callable[[], None] = nobody

    def __str__(self) -> str:
        return self.path or f"{self.address}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What env:// reads."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)} if self.port else {}


def join(world: World, context: RankContext, rendezvous: Rendezvous) -> Store:
    """The store of the rendezvous, once every rank has joined.

    Raises:
        RendezvousTimeout: some did not within the time that the process group has; they are named.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store = find_store(world, rendezvous, deadline)
    if not rendezvous.path:
        own = signature(rendezvous.secret, b"group").decode()  # at an agent's store earlier ranks may have met
        patience = timedelta(seconds=world.process_group.timeout)
        store = immortal(SignedStore(PrefixStore(own, store), rendezvous.secret, patience))
    keys = {rank: f"rank {rank} is here" for rank in range(context.world_size)}
    if store.check([keys[context.rank]]):
        raise RendezvousTimeout(f"a group has met at {rendezvous} before; remove it, or write {KEY}=file")
    publish_pid(store, context)
    store.set(keys[context.rank], "")
    if missing := wait_for_keys(store, [*keys.values()], deadline, meanwhile=rendezvous.invite):
        absent = [str(rank) for rank, key in keys.items() if key in missing]
        named = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {context.world_size}"
        raise RendezvousTimeout(f"{named} did not join within {timeout_text(world)}")
    rendezvous.met()
    return store


def wait_for_keys(
    store: Store, keys: Sequence[str], deadline: float, meanwhile: Callable[[], None] = nobody
) -> list[str]:
    """Wait for keys; returns those that are missing at the deadline."""
    meanwhile()
    while missing := [key for key in keys if not store.check([key])]:
        if time.monotonic() > deadline:
            return missing
        time.sleep(POLL_INTERVAL)
        meanwhile()
    return []


def find_store(world: World, rendezvous: Rendezvous, deadline: float) -> Store:
    """At a file or a port; what lies at a port anybody may have written."""
    if rendezvous.path:
        # its destructor writes to the file, and aborts the process if a peer that was quicker has removed it
        found = immortal(FileStore(rendezvous.path))
    else:
        _wait_for_host(world, rendezvous, deadline)
        found = TCPStore(rendezvous.address, rendezvous.port, is_master=False)
    found.set_timeout(timedelta(seconds=world.process_group.timeout))
    restarts = 0 if not rendezvous.path and agent_hosts_store() else os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
    return PrefixStore(f"start {restarts}", found)


def _wait_for_host(world: World, rendezvous: Rendezvous, deadline: float) -> None:
    """torch would wait too, and print a page of C++ frames for each time it asked."""
    while time.monotonic() < deadline:
        try:
            socket.create_connection((rendezvous.address, rendezvous.port), timeout=10 * RETRY).close()
            return
        except OSError:
            time.sleep(RETRY)
    raise RendezvousTimeout(f"nobody answered at {rendezvous} within {timeout_text(world)}; is rank 0 running?")


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (timeout of the process group)"
