"""`windward evaluate`: base against adapted on the same seeds and winds."""
