"""The rank of a process that this command did not start, but torchrun or SLURM."""

import os
import re
import sys
from collections.abc import Mapping

from lockstep.base.config_error import ConfigError, config_error
from lockstep.launch.topology import RankContext
from lockstep.plan.world import World

TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
SLURM = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"}
SLURM_SHELLS = ("bash", "interactive", "zsh", "sh")  # of interactive jobs, where the command is typed


def rank_from_env(environment: Mapping[str, str] = os.environ) -> RankContext | None:
    """Return the rank that torchrun or SLURM set for this process, or None: this command starts the ranks."""
    variables, dist = environment.keys(), sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized():  # in code that a rank calls
        rank, size = dist.get_rank(), dist.get_world_size()
        return RankContext(rank, size, int(environment.get("LOCAL_RANK", rank)), size)
    if variables >= TORCHRUN:
        rank, size, local_rank = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        return RankContext(rank, size, local_rank, int(environment.get("LOCAL_WORLD_SIZE", size)))
    ranks = environment.get("WORLD_SIZE" if "RANK" in variables else "OMPI_COMM_WORLD_SIZE", "1")
    if ranks != "1":
        raise ConfigError("This launcher's ranks are not recognized; start them by torchrun or srun.")
    if variables >= SLURM and environment.get("SLURM_JOB_NAME") not in SLURM_SHELLS:
        rank, size, local_rank = (int(environment[f"SLURM_{name}"]) for name in ("PROCID", "NTASKS", "LOCALID"))
        return RankContext(rank, size, local_rank, size // int(environment.get("SLURM_NNODES", "1")))
    return None


def is_rank_zero() -> bool:
    """Whether this process prints and writes for all ranks: the command itself, or rank 0 of an external launcher."""
    context = rank_from_env()
    return context is None or context.rank == 0


def check_launchable(world: World) -> None:
    """Raise a ConfigError if this process cannot start the ranks of `world`, or is a rank of another world."""
    context, dist = rank_from_env(), sys.modules.get("torch.distributed")
    if getattr(dist, "is_initialized", bool)():
        raise ConfigError("This process is in a process group; call lockstep.run before it is formed.")
    if context is None:
        if world.num_nodes > 1:
            hint = f"torchrun --nnodes={world.num_nodes} --nproc-per-node={world.local_world_size} …"
            hint = f"num_nodes=1, or start it on every machine by {hint}"
            raise config_error("num_nodes", world.num_nodes, "a command starts ranks on its own machine only", hint)
        return
    devices, nodes = context.local_world_size, context.world_size // context.local_world_size
    started = f"{context.world_size} processes were started from outside"
    if (world.local_world_size, world.num_nodes) != (devices, nodes):
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
        return {name: environment[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
    nodes = environment.get("SLURM_NODELIST", "127.0.0.1")
    first = re.sub(r"^([^\[,]+)(?:\[(\w+))?.*", r"\1\2", nodes)  # gpu[07-09,12],cpu1 → gpu07
    return {"MASTER_ADDR": first, "MASTER_PORT": str(15_000 + int(environment["SLURM_JOB_ID"]) % 1_000)}
