"""Measure what training costs: `python -m bench`, from a checkout.

Absolute times drift from hour to hour, so variants take turns (A B A B), and each round gives one ratio.
"""
