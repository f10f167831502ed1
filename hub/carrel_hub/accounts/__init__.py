"""Accounts of one machine: a file of names and password hashes, and the Hub's door that reads it.

For a machine of one's own or of a few colleagues. Larger places sign in with what they have and
keep the rest of Carrel as it is: nothing outside this package knows where a user came from.
"""
