"""Lockstep: the same nets under every parallel strategy, from one command."""

from lockstep.job import run
from lockstep.launch import RankFailed
from lockstep.refusal import Refusal

__all__ = ["RankFailed", "Refusal", "run"]
