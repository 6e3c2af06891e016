"""What a run leaves, and what is made of it."""
