"""Planning off the event loop: in a thread, or in a process of its own."""
