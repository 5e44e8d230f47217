"""What agents and pushers of other clusters send over HTTPS: samples and scripts, both ends of the way."""
