"""Runs in folders of their own: kept, locked, and done here, in processes or on Ray."""
