"""What is measured by `make bench`."""
