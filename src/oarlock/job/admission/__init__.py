"""From a submission to jobs that wait: parse, apply the site's rules, store."""
