"""`python -m lockstep.generate RUN "…"`: how the language model of a run with data=text continues a text."""

import math
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.base.config_error import require
from lockstep.command.entry_point import arguments, run_command
from lockstep.command.inference import load_with_plan
from lockstep.runs.checkpoint.files import read_checkpoint

USAGE = 'python -m lockstep.generate RUN "TEXT"'
HELP = f"""Continue a text by the language model of a run with data=text:  {USAGE}

RUN is the folder of a run or a checkpoint; TEXT has characters that the net has learned.
Keys, typed as KEY=VALUE:

  tokens: 400        characters to add
  temperature: 0.8   0: the likeliest; 1: as learned
  seed: 0            of the sampling
"""


@dataclass(frozen=True)
class Options:
    run: str
    text: str
    tokens: int = 400
    temperature: float = 0.8
    seed: int = 0


def show(words: Sequence[str]) -> int:
    print(continued(*astuple(arguments(Options, words, USAGE))))
    return 0


main = partial(run_command, show, help_page=HELP, has_ranks=False)


def continued(run: str, text: str, tokens: int, temperature: float, seed: int) -> str:
    """Return a text with its continuation by the net of a run; raise a ConfigError for invalid input."""
    require(tokens > 0, "tokens", tokens, "it must be 1 or more", "tokens=400")
    require(0 <= temperature < math.inf, "temperature", temperature, "it must be 0 or more", "temperature=0.8")
    plan, module = load_with_plan(run)
    characters = read_checkpoint(Path(str(plan.ckpt_path)), mmap=True).get("Text", {}).get("characters", "")
    require(bool(characters), "run", run, f"its data, {plan.data.name}, is no text", "a run with data=text")
    reason = f"the characters that the net has learned are {characters!r}"
    require(bool(text) and {*text} <= {*characters}, "text", text, reason, "a text of these")
    torch.manual_seed(seed)
    (window,), prompt = plan.data.sample_shape or (1,), torch.tensor([[*map(characters.index, text)]])
    return "".join(characters[number] for number in generate(module, prompt, window, tokens, temperature)[0].tolist())


@torch.no_grad()
def generate(module: Any, tokens: Tensor, window: int, count: int, temperature: float) -> Tensor:
    """Return tokens (1, length) and `count` more, each drawn by the logits for the last `window` before it."""
    for _ in range(count):
        logits: Tensor = module(tokens[:, -window:])[0, -1].double()
        drawn = torch.multinomial((logits / temperature).softmax(0), 1) if temperature else logits.argmax()[None]
        tokens = torch.cat([tokens, drawn[None]], dim=1)
    return tokens


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
