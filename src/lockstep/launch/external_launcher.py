"""What torchrun, SLURM or mpirun set for a process that they started: its rank, and where to rendezvous."""

import os
import re
import socket
from collections.abc import Mapping

from lockstep.config_error import ConfigError, config_error, require, typed_command
from lockstep.launch.topology import RankContext
from lockstep.world import World

TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
SLURM = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"}
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Of Open MPI; of MPICH and Intel MPI."""
SLURM_SHELLS = ("bash", "interactive", "zsh", "sh")
"""Names of interactive SLURM jobs: there the command is typed at a prompt, and not started as a task."""


def rank_from_env(environment: Mapping[str, str] = os.environ) -> RankContext | None:
    """The rank that torchrun, SLURM or mpirun set for this process; None: this command starts the ranks."""
    if environment.keys() >= TORCHRUN:
        rank, world, local_rank = (_number(environment, key) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        alone = environment["MASTER_ADDR"] in ("127.0.0.1", "localhost", "::1", socket.gethostname())
        if "LOCAL_WORLD_SIZE" not in environment and not alone:
            address = environment["MASTER_ADDR"]
            raise ConfigError(f"LOCAL_WORLD_SIZE is missing: with MASTER_ADDR={address} machines may be many; set it.")
        local_world = _number(environment, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environment else world
        return RankContext(rank, world, local_rank, local_world)
    if environment.keys() >= {"RANK", "WORLD_SIZE"} and environment["WORLD_SIZE"] != "1":
        missing = sorted(TORCHRUN - environment.keys())
        given = f"RANK={environment['RANK']} WORLD_SIZE={environment['WORLD_SIZE']}"
        raise ConfigError(f"{' and '.join(missing)}: missing beside {given}; set it as torchrun does, or unset those.")
    if (started := _rank_from_mpi(environment)) is not None:  # before SLURM: a batch script may call mpirun
        return started
    if environment.keys() >= SLURM and environment.get("SLURM_JOB_NAME") not in SLURM_SHELLS:
        rank, world, local_rank = (
            _number(environment, key) for key in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
        )
        nodes = _number(environment, "SLURM_NNODES") if "SLURM_NNODES" in environment else 1
        return RankContext(rank, world, local_rank, world // nodes)
    return None


def _rank_from_mpi(environment: Mapping[str, str]) -> RankContext | None:
    """The rank that mpirun set for this process; None where it started no second one.

    Raises:
        ConfigError: MASTER_ADDR or MASTER_PORT is missing, or a machine's ranks do not follow one another.
    """
    for names in MPI:
        if not environment.keys() >= {*names} or environment[names[1]] == "1":
            continue
        rank, world, local_rank, local_world = (_number(environment, name) for name in names)
        if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in environment]:
            given = f"{names[0]}={rank} {names[1]}={world}"
            raise ConfigError(
                f"{' and '.join(missing)}: missing beside {given}; "
                "set it for every rank: mpirun -x MASTER_ADDR=HOST0 -x MASTER_PORT=29500, say (MPICH: -genv)."
            )
        reason = f"it is number {local_rank} of {local_world} on its machine, and those have to follow one another"
        require((rank - local_rank) % local_world == 0, names[0], rank, reason, "mpirun --map-by slot")
        return RankContext(rank, world, local_rank, local_world)
    return None


def check_launchable(world: World) -> None:
    """Refuse a world whose ranks cannot be started from here."""
    context = rank_from_env()
    if world.distributed and world.backend == "mpi" and not any(os.environ.keys() >= {*names} for names in MPI):
        reason = "MPI connects only ranks that it has started"
        hint = f"mpirun -n {world.world_size} {typed_command()} …, or process_group.backend=gloo"
        raise config_error("process_group.backend", "mpi", reason, hint)
    if context is not None:
        check_world_size(context, world)
    elif world.num_nodes > 1:
        reason = "a command starts ranks on its own machine only"
        hint = f"num_nodes=1, or start it on every machine by torchrun --nnodes={world.num_nodes}"
        raise config_error("num_nodes", world.num_nodes, reason, f"{hint} --nproc-per-node={world.local_world_size} …")


def _number(environment: Mapping[str, str], key: str) -> int:
    if not environment[key].isdecimal():
        raise config_error(
            key, environment[key], "this environment variable takes a whole number", f"{key}=0, or unset it"
        )
    return int(environment[key])


def check_world_size(context: RankContext, world: World) -> None:
    """Raise a ConfigError where the configuration's world size is not the external launcher's."""
    nodes = context.world_size // context.local_world_size
    key, restarts = "strategy.max_restarts", world.max_restarts
    hint = f"{key}=0, and torchrun --max-restarts={restarts} … resume=true hydra.run.dir=FOLDER"
    require(restarts == 0, key, restarts, "these ranks were not started by this command", hint)
    if (world.local_world_size, world.num_nodes) == (context.local_world_size, nodes):
        return
    started = f"{context.world_size} processes were started from outside"
    if not world.distributed:
        raise config_error(
            "strategy", world.strategy, f"it is one process, and {started}", "strategy=ddp, or start one"
        )
    reason = f"{started}, {context.local_world_size} on each of {nodes} machine{'s' if nodes > 1 else ''}"
    raise config_error(
        "devices", world.local_world_size, reason, f"devices={context.local_world_size} num_nodes={nodes}"
    )


def rendezvous_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """MASTER_ADDR and MASTER_PORT: the launcher's, or derived from the SLURM job.

    SLURM sets neither: first host of the node list, and a port from the job's number, as Lightning's SLURMEnvironment.
    """
    if "MASTER_ADDR" in environment:
        return {"MASTER_ADDR": environment["MASTER_ADDR"], "MASTER_PORT": environment["MASTER_PORT"]}
    port = 15_000 + int(environment["SLURM_JOB_ID"]) % 1_000
    return {"MASTER_ADDR": first_host(environment.get("SLURM_NODELIST", "127.0.0.1")), "MASTER_PORT": str(port)}


def first_host(node_list: str) -> str:
    """The first name of SLURM's compressed list: `gpu[07-09,12],cpu1` → `gpu07`."""
    found = re.match(r"([^\[,]+)(?:\[(\w+))?", node_list)
    return "".join(part or "" for part in found.groups()) if found else node_list
