"""Configures a Hub whose people sign in with a directory: ``install(c, ...)``."""

from pathlib import Path
from typing import Any

from carrel_hub.accounts.signing_out import ending_sessions
from carrel_hub.directory import oidc
from carrel_hub.directory.oidc import OidcAuthenticator
from carrel_hub.sign_in import Oidc, SignIn


def install(c: Any, sign_in: SignIn, groups_file: Path, public_url: str, crypt_key: str) -> None:
    """Fill the traitlets configuration ``c`` of a Hub.

    Args:
        c: the configuration.
        sign_in: what the admin said.
        groups_file: the table of groups; need not be there.
        public_url: what people type, without a final slash.
        crypt_key: encrypts what the provider gave for each user (hex, 32 bytes).

    Raises:
        OSError, ValueError: a file with a secret cannot be read.
        DirectoryUnreachableError: the provider cannot be asked for its addresses.
    """
    c.CryptKeeper.keys = [bytes.fromhex(crypt_key)]
    if isinstance(sign_in.provider, Oidc):
        oidc.configure(c, sign_in.provider, public_url)
        authenticator: Any = OidcAuthenticator
    else:
        # Only here: ldap3 takes a while to import.
        from carrel_hub.directory.ldap import LdapAuthenticator

        authenticator = LdapAuthenticator
    c.JupyterHub.authenticator_class = ending_sessions(authenticator)
    section = c[authenticator.__name__]
    section.sign_in = sign_in
    section.groups_file = str(groups_file)
