"""Effects that steps ask for, carried out: launches, mails, programs of the site."""
