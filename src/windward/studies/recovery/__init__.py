"""`recovery`: how much of a lost return comes back, and whether adaptation ever harms."""
