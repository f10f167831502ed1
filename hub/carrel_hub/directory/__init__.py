"""Sign-in with an organisation's directory, by OpenID Connect or LDAP, instead of own accounts.

``sign_in`` beside this package is what an admin writes; ``group_rules`` is the table from groups
of the directory to projects and admins, and ``membership`` what follows from it for one user.
``oidc`` and ``ldap`` are the authenticators, on what they share in ``authenticator``;
``controller`` asks the directory again every few minutes, so that who was removed there loses
access here.
"""
