"""Passwords that are typed into the portal: PAM checks them, in a process of its own."""
