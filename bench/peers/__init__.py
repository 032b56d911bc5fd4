"""Other queues as sides: each module names one, with the settings its own documentation recommends."""
