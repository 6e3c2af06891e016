"""Measure what training costs: `python -m bench`, from a checkout.

Absolute times drift from hour to hour, so the results are ratios: the variants take turns (A B A B), and each round
gives one ratio. workloads.py lists what is measured, measurement.py has the arithmetic, baselines.py and
lightning_baseline.py the loops that the engines are compared with.
"""
