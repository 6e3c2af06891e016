"""Start the ranks of a world on this machine, or join those of an external launcher."""
