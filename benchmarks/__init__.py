"""What the project holds itself to, measured side by side with its peers in one run."""
