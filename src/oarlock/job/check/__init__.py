"""What must be true of any database, judged: `oarlock check`, the simulation and the property tests share it."""
