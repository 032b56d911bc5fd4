"""Other queues and limiters as sides, each with the settings that its own documentation recommends."""
