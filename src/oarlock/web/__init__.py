"""The API: one dispatcher for the socket, the HTTP port and the pages."""
