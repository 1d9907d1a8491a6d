"""One supervised session of a run, whatever the framework: identity, lease, telemetry, heartbeat, metrics."""
