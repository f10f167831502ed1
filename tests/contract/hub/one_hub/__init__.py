"""What leaves a Hub as it was: one serves all tests of this folder."""
