"""train.py with engines that go wrong when FAULT says so: see faults.py. All else of it is the real command."""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from lockstep import job
from lockstep.cli import command, hydra_job
from lockstep.schemas.engine import ENGINES
from tests.fault_injection.faults import arm_command

CONF = Path(__file__).parents[2] / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(config: DictConfig) -> object:
    return hydra_job(config)


if __name__ == "__main__":
    arm_command({"composing": (job, "plan_from"), "writing": (job, "save_metrics")})
    ENGINES.update({name: f"tests.fault_injection.engine_{name}" for name in ENGINES})
    command(main)
