"""The files that measurements lie in: row logs, HDF5 a job, Parquet a month; where they lie, and their thinning."""
