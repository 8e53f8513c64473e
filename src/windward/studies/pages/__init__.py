"""What every study shows: statistics, smoothed curves, and self-contained pages."""
