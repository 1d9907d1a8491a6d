"""`MonitoredTrainingSession` and what belongs to it: sessions that call hooks, and the hooks."""
