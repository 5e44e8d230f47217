"""Stories of jobs on virtual nodes and a virtual clock: the real steps, the real scheduler, the real database."""
