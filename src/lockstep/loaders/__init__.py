"""The loaders of one rank: which samples are in which global batch, and the rank's slice of each.

They stand around a user's DataLoaders (`user_loaders`) or built-in data (`split_loaders`); `rank_data` holds those of
a run.
"""
