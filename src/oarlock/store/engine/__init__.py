"""The two databases: connections, transactions, the one writer, the lock."""
