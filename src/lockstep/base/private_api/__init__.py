"""The private names of libraries that are used here, a module for each library; another version may lack them."""
