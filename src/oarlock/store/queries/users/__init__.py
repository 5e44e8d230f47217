"""Users: their records, their sessions in browsers, their mails."""
