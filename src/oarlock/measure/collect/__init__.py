"""What every job did is kept: samples are logged row by row, become one file a job at its end, and are read again."""
