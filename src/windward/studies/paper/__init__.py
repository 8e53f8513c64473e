"""The studies of the paper, a file for each kind of figure."""
