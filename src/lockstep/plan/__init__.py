"""The plan of a run, the options of what is Lockstep's, and the code that it names by path."""
