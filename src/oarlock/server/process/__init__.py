"""The process of the server: its clock, its log, its reserves, systemd, and a standby that waits."""
