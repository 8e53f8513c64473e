"""Studies that the paper does not have."""
