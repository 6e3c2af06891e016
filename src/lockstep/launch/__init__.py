"""Start the ranks of a world on this machine, or join those of an external launcher.

This file imports nothing: a rank imports only the modules that it needs (its entry point is `worker`).
"""
