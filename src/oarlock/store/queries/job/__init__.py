"""Jobs: selected, stored, moved, listed; their attempts, keys, files and changes of walltime."""
