"""The custom resources of Carrel, generated from the models of the REST API and the ledger."""
