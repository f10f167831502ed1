"""Access of a person to the API server of the cluster with ``kubectl``.

People sign in there as the cluster's administrators arranged it, mostly by OpenID Connect; Carrel
hands out no credentials of the cluster. What is sent says where the API server is, which program
signs a person in (client-go's credential plugins), and which namespaces are their projects'.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, Text


class EnvironmentEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable of the environment of the sign-in program."""

    name: Text
    value: Text


class SignInCommand(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The ``exec`` of a user in a kubeconfig: a program that signs a person in.

    Source: kubernetes.io/docs/reference/access-authn-authz/authentication, "client-go credential
    plugins".

    Attributes:
        command: looked up in the PATH of whoever calls ``kubectl``.
        install_hint: shown where the command is not there.
    """

    command: Annotated[str, Constraint(min_length=1, max_length=512)]
    args: Annotated[list[Text], Constraint(max_length=64)] = []
    env: Annotated[list[EnvironmentEntry], Constraint(max_length=64)] = []
    api_version: Literal[
        "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
    ] = "client.authentication.k8s.io/v1"
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"
    install_hint: Text = ""


class ProjectNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """The namespace of a project's work."""

    project: str
    namespace: str


class ClusterAccess(Answer, frozen=True, kw_only=True):
    """The parts of a kubeconfig for the caller.

    Attributes:
        server: URL of the API server.
        certificate_authority: certificates, as PEM, by which it is known; empty: those that the
            machine trusts.
        sign_in: the program that signs people in; ``None``: they bring a user of their own.
        namespaces: of the projects that the caller sees.
    """

    server: str
    certificate_authority: str = ""
    sign_in: SignInCommand | None = None
    namespaces: Sequence[ProjectNamespace] = ()
