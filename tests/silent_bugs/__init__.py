"""Small modules with a real mistake each, and their correct twins: cases.py is the table."""
