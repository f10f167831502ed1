"""What a cluster is told of our kinds, generated from the models of the REST API and the ledger."""
