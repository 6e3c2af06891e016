"""Ranks of which one fails in a chosen way at a chosen moment, and the commands that start them."""
