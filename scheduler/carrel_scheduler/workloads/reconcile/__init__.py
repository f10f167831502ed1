"""The reconciler: events in, decisions recorded, orders carried out."""
