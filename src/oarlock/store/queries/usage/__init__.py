"""What jobs used: accounting, summaries, energy, recordings, and jobs of the past."""
