"""The reactor: decides what the server does next, and carries effects out. The simulated cluster runs the same one."""
