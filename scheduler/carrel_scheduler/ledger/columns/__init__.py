"""The tables of the database, and how objects and rows of the past stand in their columns."""
