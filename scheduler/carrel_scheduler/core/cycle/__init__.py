"""One scheduling cycle: free capacity and queue usage as its moves leave them."""
