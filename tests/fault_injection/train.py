"""train.py with engines that go wrong when FAULT says so: see faults.py. All else of it is the real command."""

from lockstep.command import cli, job
from lockstep.plan.schemas.run import ENGINES
from tests.fault_injection.faults import arm_command

if __name__ == "__main__":
    arm_command({"composing": (job, "plan_from"), "writing": (job, "save_json")})
    ENGINES["lightning"] = "tests.fault_injection.engine_lightning"
    cli.main()
