"""Studies: settings -> runs -> statistics -> table and figure, each with a name."""
