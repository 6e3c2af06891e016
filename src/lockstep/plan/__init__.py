"""What a run is: its plan, the options of what is Lockstep's, and the code that it names by path."""
