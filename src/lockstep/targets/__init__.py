"""The user's own code: found by its import path, checked before any rank starts, called on every rank."""

from lockstep.targets.edited import edited_modules_anew
from lockstep.targets.from_python import as_target, require_not_typed
from lockstep.targets.locate import UserCodeError, check, create, user_errors
from lockstep.targets.main_module import pickled_main, restore_main

__all__ = [
    "UserCodeError",
    "as_target",
    "check",
    "create",
    "edited_modules_anew",
    "pickled_main",
    "require_not_typed",
    "restore_main",
    "user_errors",
]
