"""`python -m lockstep.generate RUN "…"`: how the language model of a run with data=text continues a text."""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.base.config_error import require
from lockstep.base.streams import ended_in_a_line
from lockstep.command.inference import load_with_plan
from lockstep.runs.checkpoint.files import read_checkpoint


def main() -> None:
    """Print a text and its continuation; exit with 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.generate", description="Continue a text.")
    parser.add_argument("run", help="the folder of a run with data=text, or a checkpoint")
    parser.add_argument("text", help="the beginning, of characters that the net has learned")
    parser.add_argument("--tokens", type=int, default=400, help="characters to add (400)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: the likeliest; 1: as learned (0.8)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    with ended_in_a_line():
        print(continued(**vars(parser.parse_args())))


def continued(run: str, text: str, tokens: int, temperature: float, seed: int) -> str:
    """Return a text with its continuation by the net of a run; raise a ConfigError for invalid input."""
    require(tokens > 0, "--tokens", tokens, "it must be 1 or more", "--tokens 400")
    require(0 <= temperature < math.inf, "--temperature", temperature, "it must be 0 or more", "--temperature 0.8")
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
    main()
