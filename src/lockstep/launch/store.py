"""The store of a group: found at its meeting place, and left when every rank has come there, or its time is over."""

import ctypes
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.ending import NotJoined
from lockstep.launch.agent import hosts_store
from lockstep.launch.peers import announce
from lockstep.launch.place import Place
from lockstep.world import World

KEY = "process_group.init_method"
LOOK = 0.005
"""Seconds between two looks at who is here: `store.wait` would print C++ warnings when its time is over."""
RETRY = 0.1
"""Seconds between two knocks at a door that is not open yet; a knock itself may take ten times as long."""


@dataclass(frozen=True)
class Meeting:
    """A file, or an address and a port."""

    path: str = ""
    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or f"{self.address}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What env:// reads."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)} if self.port else {}


def join(world: World, place: Place, meeting: Meeting) -> Store:
    """The store at the meeting place, once every rank has come there.

    Raises:
        NotJoined: some did not within the time that the process group has; they are named.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store, invite = find_store(world, place, meeting, deadline), _nobody
    if meeting.port and hosts_store():
        store, invite = _invited(store, world, place, deadline)
    keys = {rank: f"rank {rank} is here" for rank in range(place.world_size)}
    if store.check([keys[place.rank]]):
        instead = f"remove it, or write {KEY}=file" if meeting.path else "start its ranks anew"
        raise NotJoined(f"a group has met at {meeting} before; {instead}")
    announce(store, place)
    store.set(keys[place.rank], "")
    if missing := awaited(store, [*keys.values()], deadline, meanwhile=invite):
        absent = [str(rank) for rank, key in keys.items() if key in missing]
        named = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {place.world_size}"
        raise NotJoined(f"{named} did not join within {limit(world)}")
    return store


def _nobody() -> None:
    """Nobody need be invited."""


def _invited(store: Store, world: World, place: Place, deadline: float) -> tuple[Store, Callable[[], None]]:
    """The part of a store that belongs to this group alone, at a store where earlier ranks may have met.

    The number of restarts would not tell them apart: an agent that starts its ranks anew because another machine's
    has done so does not count it. So each rank comes under a name of its own, and rank 0, as long as some are missing,
    tells every name where the group is.
    """
    name = uuid.uuid4().hex
    if place.rank == 0:

        def invite() -> None:
            for rank in range(1, place.world_size):
                if store.check([f"rank {rank} comes as"]):
                    store.set(f"{store.get(f'rank {rank} comes as').decode()} goes to", name)

        return PrefixStore(name, store), invite
    store.set(f"rank {place.rank} comes as", name)
    if awaited(store, [f"{name} goes to"], deadline):
        raise NotJoined(f"rank 0 of {place.world_size} did not join within {limit(world)}")
    return PrefixStore(store.get(f"{name} goes to").decode(), store), _nobody


def awaited(store: Store, keys: Sequence[str], deadline: float, meanwhile: Callable[[], None] = _nobody) -> list[str]:
    """Wait for keys; those that are not there at the deadline."""
    meanwhile()
    while missing := [key for key in keys if not store.check([key])]:
        if time.monotonic() > deadline:
            return missing
        time.sleep(LOOK)
        meanwhile()
    return []


def find_store(world: World, place: Place, meeting: Meeting, deadline: float) -> Store:
    if meeting.path:
        found: Store = FileStore(meeting.path)
        # Its destructor writes to the file, and aborts the process if a peer that was quicker has removed it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    else:
        _wait_for_host(world, meeting, deadline)
        found = TCPStore(meeting.address, meeting.port, is_master=False)
    found.set_timeout(timedelta(seconds=world.process_group.timeout))
    restarts = 0 if meeting.port and hosts_store() else os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
    return PrefixStore(f"start {restarts}", found)


def _wait_for_host(world: World, meeting: Meeting, deadline: float) -> None:
    """torch would wait too, and print a page of C++ frames for each time it asked."""
    while time.monotonic() < deadline:
        try:
            socket.create_connection((meeting.address, meeting.port), timeout=10 * RETRY).close()
            return
        except OSError:
            time.sleep(RETRY)
    raise NotJoined(f"nobody answered at {meeting} within {limit(world)}; is rank 0 running?")


def limit(world: World) -> str:
    return f"{world.process_group.timeout:g} s (timeout of the process group)"
