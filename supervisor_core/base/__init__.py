"""What every room may use: options, errors, log, clock, addresses, names, checksums, the system's differences."""
