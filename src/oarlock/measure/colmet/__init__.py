"""Colmet's messages and files: what its nodes send is received, and what we keep is written as its collector did."""
