import pytest

from lockstep.command_line.flags import require_flags
from lockstep.config_error import ConfigError

REFUSED = [
    ("--resolve", "--resolve: it goes with --cfg alone; write --cfg job --resolve."),
    ("--info config --resolve", "--resolve: it goes with --cfg alone"),
    ("--multirun --run", "--run --multirun: these do not go together; write one of them."),
    ("--cfg job -m", "--multirun --cfg: these do not go together"),
    ("--info --cfg job", "--cfg --info: these do not go together"),
    ("--package=x", "--package=x: it goes with --cfg alone; write --cfg job --package=x."),
    ("-m -p x seed=1,2", "--package=x: it goes with --cfg alone"),
    ("--experimental-rerun=job.pickle", "--experimental-rerun: a pickled job is not run again here; write"),
    ("--cfg seed=1", "argument --cfg/-c: invalid choice: 'seed=1'"),
    ("--foo", "unrecognized arguments: --foo; write flags that python train.py --hydra-help lists"),
]


@pytest.mark.parametrize(("line", "sentence"), REFUSED, ids=[case[0] for case in REFUSED])
def test_flags_that_are_not_or_do_not_go_together(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        require_flags(line.split())
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "line", ["", "seed=1", "-m seed=1,2", "--cfg job --resolve -p model seed=1", "--info", "--help"]
)
def test_flags_that_go_together(line: str) -> None:
    assert require_flags(line.split()).overrides == [word for word in line.split() if "=" in word]
