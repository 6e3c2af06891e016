"""torch.distributed from the ground up: `python -m lockstep.collectives` runs every primitive on real ranks.

Start with primitives.py: how each is called, what every rank must hold afterwards, what it does and costs. tour.py
makes the calls and checks the results, benchmark.py measures time over size and fits t = α + n·β to it.
failures.py makes wrong calls; partition.py shows which rank gets which samples.
"""
