"""The rank of a process that this command did not start: of torchrun or SLURM, or of a program's own group."""

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.launch.topology import RankContext
from lockstep.plan.world import World

TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
SLURM = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"}
SLURM_SHELLS = ("bash", "interactive", "zsh", "sh")  # of interactive jobs, where the command is typed


def rank_from_env(environment: Mapping[str, str] = os.environ) -> RankContext | None:
    """Return the rank that torchrun or SLURM set for this process, or None: this command starts the ranks.

    In a process group that the program has formed (Ray Train does), the rank is that group's. Where LOCAL_RANK or
    LOCAL_WORLD_SIZE is not set, all ranks are on this machine.
    """

    def number(name: str, default: int = 1) -> int:
        text = environment.get(name, str(default))
        hint = f"{name}=0, or unset it"
        require(text.isdecimal(), name, text, "this environment variable takes a whole number", hint)
        return int(text)

    variables = environment.keys()
    if dist := program_group():
        rank, world_size = dist.get_rank(), dist.get_world_size()
        return RankContext(rank, world_size, number("LOCAL_RANK", rank), number("LOCAL_WORLD_SIZE", world_size))
    if variables >= TORCHRUN:
        rank, world_size = number("RANK"), number("WORLD_SIZE")
        return RankContext(rank, world_size, number("LOCAL_RANK"), number("LOCAL_WORLD_SIZE", world_size))
    if variables >= {"RANK", "WORLD_SIZE"} and environment["WORLD_SIZE"] != "1":
        missing, hint = " and ".join(sorted(TORCHRUN - variables)), "set it as torchrun does, or unset those"
        beside = f"RANK={environment['RANK']} WORLD_SIZE={environment['WORLD_SIZE']}"
        raise ConfigError(f"{missing}: missing beside {beside}; {hint}.")
    reason, hint = "ranks of mpirun are not recognized", "torchrun or srun in place of mpirun"
    processes = number("OMPI_COMM_WORLD_SIZE")
    require(processes == 1, "OMPI_COMM_WORLD_SIZE", processes, reason, hint)
    if variables >= SLURM and environment.get("SLURM_JOB_NAME") not in SLURM_SHELLS:
        rank, world_size = number("SLURM_PROCID"), number("SLURM_NTASKS")
        return RankContext(rank, world_size, number("SLURM_LOCALID"), world_size // number("SLURM_NNODES"))
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
    context, key, restarts = rank_from_env(), "strategy.max_restarts", world.max_restarts
    if context is None:
        reason = "a command starts ranks on its own machine only"
        hint = f"num_nodes=1, or start it on every machine by torchrun --nnodes={world.num_nodes}"
        hint += f" --nproc-per-node={world.local_world_size} …"
        require(world.num_nodes == 1, "num_nodes", world.num_nodes, reason, hint)
        return
    hint = f"{key}=0, and torchrun --max-restarts={restarts} … resume=true hydra.run.dir=FOLDER"
    require(restarts == 0, key, restarts, "these ranks were not started by this command", hint)
    devices, nodes = context.local_world_size, context.world_size // context.local_world_size
    started = f"{context.world_size} processes were started from outside"
    if (world.local_world_size, world.num_nodes) == (devices, nodes):
        return
    if not world.distributed:
        hint = "strategy=ddp, or start one"
        raise config_error("strategy", world.strategy, f"it is one process, and {started}", hint)
    reason = f"{started}, {devices} on each of {nodes} machine{'s' if nodes > 1 else ''}"
    raise config_error("devices", world.local_world_size, reason, f"devices={devices} num_nodes={nodes}")


def rendezvous_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT: the launcher's, or derived from the SLURM job.

    SLURM sets neither: first host of the node list, and a port from the job's number, as Lightning's SLURMEnvironment.
    """
    if "MASTER_ADDR" in environment:
        return {"MASTER_ADDR": environment["MASTER_ADDR"], "MASTER_PORT": environment["MASTER_PORT"]}
    nodes = environment.get("SLURM_NODELIST", "127.0.0.1")
    first = re.sub(r"^([^\[,]+)(?:\[(\w+))?.*", r"\1\2", nodes)  # gpu[07-09,12],cpu1 → gpu07
    return {"MASTER_ADDR": first, "MASTER_PORT": str(15_000 + int(environment["SLURM_JOB_ID"]) % 1_000)}
