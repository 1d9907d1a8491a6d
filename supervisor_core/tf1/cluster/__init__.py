"""Chief, workers and parameter servers: who waits for whom, and what happens to a model that outlives its chief."""
