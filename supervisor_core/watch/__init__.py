"""A logdir watched: the index of its files and the model of its runs, refreshed together."""
