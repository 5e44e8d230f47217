"""What is measured of the machine as a whole, and what it is made of."""
