"""The known nodes and devices, and the consequences of their changes."""
