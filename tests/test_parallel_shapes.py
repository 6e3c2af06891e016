"""What each replica says it sees: 30 rows of five features are 15 and 15."""

import pytest

from tests.conftest import Command

SAYS = "a replica sees (15, 5) and returns (15, 2)"


@pytest.mark.parametrize("engine", ["lightning", "raw"])
def test_each_rank_says_its_own(engine: str, command: Command) -> None:
    ended = command.train("experiment=replica_shapes", f"engine={engine}")
    assert ended.out.count("a replica sees") == ended.out.count(SAYS) == 1, "once, of its three batches"
    log = (ended.run_dir / "ranks" / "1.log").read_text()
    assert log.count("a replica sees") == log.count(SAYS) == 1


def test_each_replica_of_one_process(command: Command) -> None:
    ended = command.train("experiment=replica_shapes", "engine=raw", "strategy=dp")
    assert ended.out.count(SAYS) == ended.out.count("a replica sees") == 2


def test_nobody_says_anything_unasked(command: Command) -> None:
    assert "sees" not in command.train("experiment=replica_shapes", "show_shapes=false", "engine=raw").out
