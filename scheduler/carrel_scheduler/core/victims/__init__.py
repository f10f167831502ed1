"""Whom to stop or move for whom: rights, who could give way, what that costs, and new places."""
