"""Studies that train D4PG, with MF-GPC and without; and the search of its settings."""
