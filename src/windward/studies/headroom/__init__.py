"""What each way of learning M captures of what there is to gain, on trained policies."""
