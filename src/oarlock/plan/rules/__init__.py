"""What restricts a placement besides free resources: quotas, reservations, containers, windows."""
