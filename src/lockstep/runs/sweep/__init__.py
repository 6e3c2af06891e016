"""Sweeps: each job has its own folder, and one that is refused or fails does not stop the others."""
