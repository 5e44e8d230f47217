"""Every query, by the table or subject it is about."""
