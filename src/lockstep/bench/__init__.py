"""What it costs: `python -m lockstep.bench` measures each way of doing a thing beside a yardstick, in one run.

Absolute times drift from hour to hour, so what counts are ratios: the ways take turns (A B A B), and each round gives a
ratio of its own. Read workloads.py first, what is measured, then row.py, the arithmetic. loops.py holds the yardsticks
of training: the sources' recipe as written, and a bare loop over tensors. guide.py is the way from start to end.

What a rank does is in loops.py, calls.py and counting.py, which import torch; what it is asked for beside them in
loops_work.py, calls_work.py and roofline_work.py, which do not.
"""
