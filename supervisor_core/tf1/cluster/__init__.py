"""Chief, workers and parameter servers: who waits for whom, and what becomes of a model that outlives its chief."""
