"""What is known of one process, from inside and from outside, without its logdir: identity, and files in memory."""
