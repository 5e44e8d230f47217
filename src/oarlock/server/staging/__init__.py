"""Files of jobs on the server: sent before they start, fetched after they ran on a desktop."""
