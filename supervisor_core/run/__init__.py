"""What is known about a run, as plain frozen values: no threads, no I/O, no clock."""
