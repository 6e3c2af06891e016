"""Machines of a cluster for tests: namespaces, each with a network, a hostname and mounts of its own, and a switch.

A namespace lives as long as a process in it, and its interfaces with it. Here that is a `cat` which waits for the
test's end of a pipe: whatever becomes of the test, nothing is left.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

NETWORK = "10.77.0"
CABLE = "cable"
"""The name of the interface of each machine; not one that gloo or nccl would look for."""

SETUP = """
hostname "$0" && ip link set lo up && mount -t tmpfs tmpfs /mnt &&
printf '127.0.0.1 localhost\\n%s\\n' "$1" >/mnt/hosts &&
mount --bind /mnt/hosts /etc/hosts && echo 'nameserver 127.0.0.1' >/mnt/resolv.conf &&
mount --bind /mnt/resolv.conf /etc/resolv.conf && echo ready && exec cat
"""
"""What the shell of a new machine does; the `cat` then keeps the namespaces."""


@dataclass(frozen=True)
class Machine:
    """A machine by its number: `holder` is the process that its namespaces live with."""

    number: int
    holder: int

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number + 1}"

    def inside(self, *arguments: str) -> list[str]:
        """A command line that runs on this machine."""
        return [*entered(self.holder), *arguments]

    def do(self, *arguments: str) -> None:
        subprocess.run(self.inside(*arguments), check=True, capture_output=True)


@dataclass(frozen=True)
class Cluster:
    """The machines, and the process that holds the switch between them."""

    machines: tuple[Machine, ...]
    switch: int

    def plug(self, machine: Machine, state: str) -> None:
        """`down`: the machine's cable is cut; `up`: it is whole again."""
        subprocess.run([*entered(self.switch), "ip", "link", "set", f"port{machine.number}", state], check=True)


def entered(holder: int) -> list[str]:
    return ["nsenter", f"--target={holder}", "--net", "--uts", "--mount", "--wd=.", "--"]


@contextmanager
def cluster(count: int, hosts: str = "") -> Iterator[Cluster]:
    """So many machines on one switch. No name resolves there, but those in `hosts` (lines of /etc/hosts)."""
    with ExitStack() as stack:
        switch = stack.enter_context(namespaces("switch", ""))
        inside = entered(switch)
        run(*inside, "ip", "link", "add", "switch", "type", "bridge")
        run(*inside, "ip", "link", "set", "switch", "up")
        machines = []
        for number in range(count):
            holder = stack.enter_context(namespaces(f"no-such-host-{number}", hosts))
            machine = Machine(number, holder)
            port = f"port{number}"
            run(*inside, "ip", "link", "add", port, "type", "veth", "peer", "name", CABLE, "netns", str(holder))
            run(*inside, "ip", "link", "set", port, "master", "switch", "up")
            machine.do("ip", "address", "add", f"{machine.address}/24", "dev", CABLE)
            machine.do("ip", "link", "set", CABLE, "up")
            machines.append(machine)
        yield Cluster(tuple(machines), switch)


@contextmanager
def namespaces(hostname: str, hosts: str) -> Iterator[int]:
    """The process that holds namespaces of its own, its loopback up; skips the test where the system forbids that."""
    line = ["unshare", "--net", "--uts", "--mount", "sh", "-c", SETUP, hostname, hosts]
    try:
        holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        pytest.skip("needs unshare, of util-linux")
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"ready\n":
            pytest.skip(f"needs namespaces, which this system does not allow: {holder.stderr.read().decode().strip()}")
        yield holder.pid
        holder.stdin.close()
        holder.wait(10)


def run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs bridges and veth, which this system does not allow: {done.stderr.strip()}")
