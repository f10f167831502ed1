"""Documents that are kept in a scope, see ``carrel_schema.scopes``; and what is said of them."""
