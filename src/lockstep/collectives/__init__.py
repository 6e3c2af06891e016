"""torch.distributed from the ground up: `python -m lockstep.collectives` runs every primitive on real ranks.

Start with primitives.py: how each is called, what every rank must hold afterwards, what it does and costs.
"""
