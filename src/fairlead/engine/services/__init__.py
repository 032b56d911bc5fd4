"""What runs beside the workers in every process: heartbeat, rescuer, scheduler, loop meter, clean-up.

Each service has ``run()``, which works until ``stop()`` is called or its task is cancelled. Several processes
may run them all: what must happen once across the fleet is decided by compare-and-set in the store (R4).
"""
