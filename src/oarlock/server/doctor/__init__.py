"""Doctor: what is wrong with the server's machine and its nodes, before a job suffers from it."""
