"""The private names of libraries that are used here, a module for each library.

Another version may lack them. Each module says what then happens.
"""
