"""What training costs: `python -m lockstep.bench` times variants of the same work side by side.

Absolute times drift from hour to hour, so what counts are ratios: the variants take turns (A B A B), and each round
gives a ratio of its own. Read workloads.py first, what is measured, then measurement.py, the arithmetic. baselines.py
holds the loops that the engines are compared with; runner.py leads from the options to the table and the plot.
"""
