"""What every service process of Carrel needs; it imports no other package of ours."""
