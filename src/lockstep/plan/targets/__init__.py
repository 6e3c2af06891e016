"""The user's own code: found by its import path, checked before any rank starts, called on every rank."""
