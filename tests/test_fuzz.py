"""Thousands of random overrides: each is refused in one sentence, or the plan has what was asked for.

Seeded by the date, which is printed; LOCKSTEP_FUZZ_SEED=N repeats a day's, LOCKSTEP_FUZZ=N takes more of them.
"""

import datetime
import os
import random
import re
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from lockstep.command_line.compose import compose_job
from lockstep.command_line.hydra_errors import planning
from lockstep.command_line.overrides import OPTIONS, known_keys
from lockstep.conf import CONF
from lockstep.config_error import ConfigError
from lockstep.job import prepare
from lockstep.schemas.groups import GROUPS, SEVERAL

SEED = int(os.environ.get("LOCKSTEP_FUZZ_SEED", datetime.date.today().strftime("%Y%m%d")))
COUNT = int(os.environ.get("LOCKSTEP_FUZZ", "2000"))
DERIVED = (
    *("experiment", "batch_size_per_device", "scale_lr"),
    *("trainer.fast_dev_run", "trainer.barebones", "trainer.overfit_batches"),
)
"""Keys that change others, so that a plan may differ from another override."""


def _words(text: str) -> list[str]:
    return text.split()


LIKELY = _words("1 2 4 8 0.5 0.01 1e-3 true false null [8] [16,8] auto cpu batch raw")
HUGE = ["9" * 40, "9" * 400, "9" * 5000, "0." + "0" * 400 + "1", *_words(f"1e308 1e309 -1e400 {2**63} {2**31}")]
NUMBERS = _words("0 1 2 3 7 64 -1 1.5 1e3 1_000 0x10 0b1 007 +5 -0 nan inf .5")
WORDS = ["", *_words("true false null yes no on off None abc a/b .. ../x / ~ ~x %s")]
TEXT = ["größe", "日本", "a b", "'a b'", '"a b"', "'", '"', "'a", "a'b", "\\", "a\\", "a\nb", "'a\nb'", "\t"]
LONG = ["é" * 300, "n" * 5000, "[" * 60 + "]" * 60, "{a:" * 40 + "1" + "}" * 40, "[" * 3000]
SHAPES = _words("[] [1] [1,2] [[1]] [a,b] [true] [null] {} {a:1} {a:{b:[1]}} [1 {a: [ ( [-1]")
LOOKUPS = _words("${seed} ${nope} ${name} ${model.hidden} ${oc.env:HOME} ${oc.env:NOPE} ${now:%d} ${now:}")
BROKEN = _words("${ ${} ${ranks_of:ddp,2} ${ranks_of:1} ${gpus_of:gpu,x} ${help_page:} $ $(x)")
SWEEPS = _words("1,2 a,b range(1,3) range(3) choice(1,2) interval(0,1) glob(*) glob(m*) shuffle(1,2) tag(a,1)")
CASTS = _words("int(3.7) str(5) float(abc) bool(1) json_str(x) sort(3,1) int( foo(1) int([1,2]) bool(x)")
VALUES = [HUGE, NUMBERS, WORDS, TEXT, LONG, SHAPES, LOOKUPS, BROKEN, SWEEPS, CASTS]
HYDRA = _words("""hydra.run.dir hydra.sweep.dir hydra.sweep.subdir hydra.job.name hydra.mode hydra.verbose
    hydra.searchpath hydra.sweeper.params.seed hydra/launcher hydra/sweeper hydra.job.chdir hydra hydra.output_subdir
    hydra/output hydra/help hydra.callbacks hydra.job.env_set.X hydra.nope""")
ODD = _words("""a a.b.c devicez max_steps model.nope optimizer größe a-b 1 _ a..b .a model@x model@_global_ @x
    model/mlp /model seed.x model.hidden.0 model.hidden[0] data.name.x""")
KNOWN = known_keys()
KEYS = [*HYDRA, *ODD, "", "x" * 300]


def random_overrides(number: int) -> list[str]:
    """Return one to four overrides that follow from the number."""
    chance = random.Random(number)
    if chance.random() < 0.3:  # nothing odd: most of these make a plan
        keys = [key for key in KNOWN if OmegaConf.select(defaults(), key) is not None]
        return [f"{key}={_likely(key, chance)}" for key in chance.sample(keys, 2)]
    return [_override(chance) for _ in range(chance.choice((1, 1, 1, 2, 3, 4)))]


def _override(chance: random.Random) -> str:
    key = chance.choice(KNOWN if chance.random() < 0.75 else KEYS)
    if key in OPTIONS and chance.random() < 0.6:
        value = chance.choice(OPTIONS[key])
    elif key in GROUPS and chance.random() < 0.2:
        key, value = f"{key}.name", chance.choice(chance.choice(VALUES))
    elif chance.random() < 0.6:
        value = _likely(key, chance)
    else:
        value = chance.choice(chance.choice(VALUES))
    if chance.random() < 0.05:  # a slip of the finger
        at = chance.randrange(len(key) + 1)
        key = key[:at] + chance.choice("_.=@+~ x") + key[at + 1 :]
    if chance.random() < 0.1:
        value = f"[{value},{chance.choice(NUMBERS)}]"
    before = chance.choice(("",) * 12 + ("+", "++", "~", "-"))
    return before + key if before == "~" and chance.random() < 0.5 else f"{before}{key}={value}"


def _likely(key: str, chance: random.Random) -> str:
    """Return a value of the type that the key has by default."""
    default = OmegaConf.select(defaults(), key)
    if key in OPTIONS:
        return chance.choice(OPTIONS[key])
    kinds: dict[type, list[str]] = {bool: ["true", "false"], int: ["1", "2", "4", "8"], float: ["0.5", "0.01", "1e-3"]}
    return chance.choice(kinds.get(type(default), LIKELY))


@cache
def defaults() -> DictConfig:
    return compose_job([])[0]


def wanted(override: str) -> tuple[str, Any] | None:
    """Return the key and value of an override if they are unambiguous, else None."""
    key, _, value = override.partition("=")
    if key in KNOWN and value.isdigit() and (value == "0" or value[0] != "0") and len(value) < 15:
        return key, int(value)
    if key in OPTIONS and value in OPTIONS[key]:
        return key, value
    return None


def value_at(config: Any, key: str) -> Any:
    """Return the value in a plan's dictionary of a key of the command line."""
    group, _, rest = key.partition(".")
    if group in SEVERAL and rest:
        name, _, field = rest.partition(".")
        return next(option[field] for option in config[group] if option["name"] == name)
    value = OmegaConf.select(OmegaConf.create(config), key)
    if key in SEVERAL:
        return ", ".join(option["name"] for option in value) or "none"
    return value["name"] if OmegaConf.is_dict(value) and "name" in value else value


def option_name(key: str, value: object) -> object:
    """Return the class of an option that is an import path, else its name."""
    path = CONF / key / f"{value}.yaml"
    target = re.search(r"^ *_target_: .*?(\w+)$", path.read_text(), re.MULTILINE) if path.is_file() else None
    return target[1] if target else value


def outcome(words: list[str]) -> str:
    """Return what becomes of overrides on their way to a plan, as in job.py."""
    try:
        with planning(words):
            plan = prepare(*compose_job(words), has_folder=True)
    except ConfigError as raised:
        return f"refused: {raised}"
    if not any(word.lstrip("+~").startswith(DERIVED) for word in words):
        last = {word.partition("=")[0].lstrip("+"): word for word in words}
        for key, value in filter(None, map(wanted, last.values())):
            planned = value_at(asdict(plan), key)
            if planned != value and str(planned) not in (str(value), str(option_name(key, value))):
                return f"wrong: {key} is {planned}"
    return "right"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    ends: Counter[str] = Counter()
    number = SEED * 10**6
    while ends.total() < COUNT:
        words, number = random_overrides(number), number + 1
        end = outcome(words)
        kind = end.partition(":")[0]
        ends.update([kind] * len(words))
        assert kind != "wrong", (number - 1, words, end)
        assert "\n" not in end, (number - 1, words, end)
        assert "Traceback" not in end
    with capsys.disabled():
        print(f"\nLOCKSTEP_FUZZ_SEED={SEED}: {dict(ends)}")
    assert list(tmp_path.iterdir()) == []
    assert ends["right"] > COUNT // 50
