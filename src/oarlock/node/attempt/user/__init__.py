"""What runs as the job's user: its command, its environment, its processes and the way to become that user."""
