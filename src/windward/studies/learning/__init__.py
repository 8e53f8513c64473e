"""Learning curves of D4PG beside SBX's DDPG."""
