"""One scheduling cycle: free capacity and queue usage, changed by the cycle's moves."""
