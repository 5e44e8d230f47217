"""Whether a request fits into a set of free resources, and which resources it takes."""
