"""Energy: the meters of nodes, and whose it was; everything adds up to the meter, exactly."""
