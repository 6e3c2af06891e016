"""The rank of a process that this command did not start: of torchrun, SLURM or mpirun, or of a program's own group."""

import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

from lockstep.config_error import ConfigError, config_error, require
from lockstep.launch.topology import RankContext
from lockstep.world import World

TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
SLURM = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"}
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""The variables of Open MPI; of MPICH and Intel MPI."""
SLURM_SHELLS = ("bash", "interactive", "zsh", "sh")  # of interactive jobs, where the command is typed


def rank_from_env(environment: Mapping[str, str] = os.environ) -> RankContext | None:
    """Return the rank that torchrun, SLURM or mpirun set for this process, or None: this command starts the ranks.

    In a process group that the program has formed (Ray Train does), the rank is that group's. If LOCAL_RANK or
    LOCAL_WORLD_SIZE is not set then, all ranks are on this machine.
    """

    def numbers(*names: str) -> list[int]:
        for name in names:
            reason = "this environment variable takes a whole number"
            require(environment[name].isdecimal(), name, environment[name], reason, f"{name}=0, or unset it")
        return [int(environment[name]) for name in names]

    variables = environment.keys()
    if dist := program_group():
        place = dist.get_rank(), dist.get_world_size()
        local = numbers("LOCAL_RANK", "LOCAL_WORLD_SIZE") if variables >= {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} else place
        return RankContext(*place, *local)
    if variables >= TORCHRUN:
        rank, world_size, local_rank = numbers("RANK", "WORLD_SIZE", "LOCAL_RANK")
        address = environment["MASTER_ADDR"]
        if "LOCAL_WORLD_SIZE" in variables:
            return RankContext(rank, world_size, local_rank, numbers("LOCAL_WORLD_SIZE")[0])
        if address not in ("127.0.0.1", "localhost", "::1", socket.gethostname()):
            raise ConfigError(f"LOCAL_WORLD_SIZE is missing: with MASTER_ADDR={address} machines may be many; set it.")
        return RankContext(rank, world_size, local_rank, world_size)
    if variables >= {"RANK", "WORLD_SIZE"} and environment["WORLD_SIZE"] != "1":
        missing, hint = " and ".join(sorted(TORCHRUN - variables)), "set it as torchrun does, or unset those"
        beside = f"RANK={environment['RANK']} WORLD_SIZE={environment['WORLD_SIZE']}"
        raise ConfigError(f"{missing}: missing beside {beside}; {hint}.")
    for names in MPI:  # before SLURM: a batch script may call mpirun
        if variables >= {*names} and environment[names[1]] != "1":
            rank, world_size, local_rank, local_world_size = numbers(*names)
            if missing := " and ".join(name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in variables):
                hint = "set it for every rank: mpirun -x MASTER_ADDR=HOST0 -x MASTER_PORT=29500, say (MPICH: -genv)"
                raise ConfigError(f"{missing}: missing beside {names[0]}={rank} {names[1]}={world_size}; {hint}.")
            reason = f"it is number {local_rank} of {local_world_size} on its machine, and those follow one another"
            follows = (rank - local_rank) % local_world_size == 0
            require(follows, names[0], rank, reason, "mpirun --map-by slot")
            return RankContext(rank, world_size, local_rank, local_world_size)
    if variables >= SLURM and environment.get("SLURM_JOB_NAME") not in SLURM_SHELLS:
        rank, world_size, local_rank = numbers("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
        [nodes] = numbers("SLURM_NNODES") if "SLURM_NNODES" in variables else [1]
        return RankContext(rank, world_size, local_rank, world_size // nodes)
    return None


def program_group() -> Any:
    """Return torch.distributed if this process is in a process group, or None; import nothing."""
    dist = sys.modules.get("torch.distributed")
    return dist if getattr(dist, "is_initialized", bool)() else None


def is_rank_zero() -> bool:
    """Whether this process prints and writes for all ranks: the command itself, or rank 0 of an external launcher."""
    context = rank_from_env()
    return context is None or context.rank == 0


def check_launchable(world: World) -> None:
    """Raise a ConfigError if this process cannot start the ranks of `world`, or is a rank of another world."""
    context = rank_from_env()
    if context is not None:
        check_world_size(context, world)
    elif world.num_nodes > 1:
        reason = "a command starts ranks on its own machine only"
        hint = f"num_nodes=1, or start it on every machine by torchrun --nnodes={world.num_nodes}"
        raise config_error("num_nodes", world.num_nodes, reason, f"{hint} --nproc-per-node={world.local_world_size} …")


def check_world_size(context: RankContext, world: World) -> None:
    """Raise a ConfigError if the configuration's world size is not the external launcher's."""
    nodes, devices = context.world_size // context.local_world_size, context.local_world_size
    key, restarts = "strategy.max_restarts", world.max_restarts
    hint = f"{key}=0, and torchrun --max-restarts={restarts} … resume=true hydra.run.dir=FOLDER"
    require(restarts == 0, key, restarts, "these ranks were not started by this command", hint)
    if (world.local_world_size, world.num_nodes) == (devices, nodes):
        return
    reason = f"{context.world_size} processes were started from outside"
    if not world.distributed:
        hint = "strategy=ddp, or start one"
        raise config_error("strategy", world.strategy, f"it is one process, and {reason}", hint)
    reason += f", {devices} on each of {nodes} machine{'s' if nodes > 1 else ''}"
    raise config_error("devices", world.local_world_size, reason, f"devices={devices} num_nodes={nodes}")


def rendezvous_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT: the launcher's, or derived from the SLURM job.

    SLURM sets neither: first host of the node list, and a port from the job's number, as Lightning's SLURMEnvironment.
    """
    if "MASTER_ADDR" in environment:
        return {"MASTER_ADDR": environment["MASTER_ADDR"], "MASTER_PORT": environment["MASTER_PORT"]}
    port = 15_000 + int(environment["SLURM_JOB_ID"]) % 1_000
    return {"MASTER_ADDR": first_host(environment.get("SLURM_NODELIST", "127.0.0.1")), "MASTER_PORT": str(port)}


def first_host(node_list: str) -> str:
    """Return the first name of SLURM's compressed list: `gpu[07-09,12],cpu1` → `gpu07`."""
    return re.sub(r"^([^\[,]+)(?:\[(\w+))?.*", r"\1\2", node_list)
