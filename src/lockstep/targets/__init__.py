"""The user's own code: found by its import path, checked before any rank starts, called on every rank."""

from lockstep.targets.locate import UserCodeError, check, create, user_errors

__all__ = ["UserCodeError", "check", "create", "user_errors"]
