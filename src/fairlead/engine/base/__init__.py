"""What every domain of the engine uses: services, timing, batches, outages."""
