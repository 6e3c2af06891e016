"""torch.distributed from the ground up: `python -m lockstep.collectives` runs every primitive on real ranks.

Start with primitives.py: how each is called, what every rank must hold afterwards, what it does and costs. ranks.py
makes the calls, verify.py checks the results, timing.py measures time over size and fit.py fits t = α + n·β.
failures.py makes wrong calls; partition.py shows which rank gets which samples.
"""
