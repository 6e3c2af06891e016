"""The loaders of one rank: which samples are in which global batch, and the rank's slice of each."""
