"""What `oarsub` puts together: the body of a submission, its files, its keys."""
