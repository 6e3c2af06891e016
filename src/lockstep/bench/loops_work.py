"""What a loop of the bench is started for: a plan, and which recipe is to train it."""

from dataclasses import dataclass
from typing import Literal

from lockstep.plan import Plan
from lockstep.world import World

Recipe = Literal["source", "bare"]


@dataclass(frozen=True)
class Loop:
    recipe: Recipe
    plan: Plan

    @property
    def world(self) -> World:
        return self.plan.world
