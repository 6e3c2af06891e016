"""The private names of libraries that are used here, a module for each library.

Another version may lack them: a module that allows for it says what then happens.
"""
