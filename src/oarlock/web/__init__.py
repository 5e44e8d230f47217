"""The way in: one dispatcher for the socket, the HTTP port and the pages."""
