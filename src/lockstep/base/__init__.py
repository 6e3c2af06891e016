"""Helpers for every package; they depend on no run."""
