"""Whether a resumed training is the same training: same samples, same bits; ours beside each framework's own tool."""
