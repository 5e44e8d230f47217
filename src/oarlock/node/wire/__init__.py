"""What travels between server and node: frames, messages, signatures, and the program itself."""
