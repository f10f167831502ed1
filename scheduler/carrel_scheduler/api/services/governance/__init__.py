"""What the operations of ``operations.governance`` do."""
