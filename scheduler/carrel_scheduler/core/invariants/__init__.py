"""What must always hold, as named functions over states and plans; for tests and simulations."""
