"""train.py with engines that go wrong when FAULT says so: see faults.py. All else of it is the real command."""

from lockstep.command import cli
from lockstep.plan.schemas.run import ENGINES

if __name__ == "__main__":
    ENGINES["lightning"] = "tests.fault_injection.engine_lightning"
    cli.main()
