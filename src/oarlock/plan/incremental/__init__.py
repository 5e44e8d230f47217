"""A plan kept between passes and updated with what changed."""
