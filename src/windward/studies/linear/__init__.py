"""Studies of linear systems: computed at one go, with exact comparators."""
