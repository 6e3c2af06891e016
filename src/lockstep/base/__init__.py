"""What every part uses, and knows of no run."""
