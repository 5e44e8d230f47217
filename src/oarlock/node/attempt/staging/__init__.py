"""Files that come to the job's directory before it starts, and go home from it afterwards."""
