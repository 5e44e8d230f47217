"""The node program: one process per node and server, which hands attempts to supervisors."""
