"""Names of files and folders that are never read: secrets by their names, and what is no part of a project."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

HOLDS_SECRETS = "not read: holds secrets by its name"

NOISE = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "site-packages", "dist-packages", "node_modules",
        "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".hypothesis", ".eggs",
    }
)  # fmt: skip
_SECRET_FOLDERS = frozenset(
    {
        ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", "gcloud", ".password-store", ".kaggle",
        ".oci", "keyrings", ".mozilla", ".thunderbird", "credentials", ".credentials", "secrets", ".secrets",
    }
)  # fmt: skip
_SECRET_FILES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "*.gpg", "*.pgp", "*.asc", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass",
    ".my.cnf", ".git-credentials", ".gitconfig", ".npmrc", ".pypirc", ".htpasswd", ".boto", ".s3cfg", "credentials",
    "credentials.*", "*_credentials.json", "*-credentials.json", "secrets.*", "secret.*", ".secrets*", "kaggle.json",
    "service_account*.json", "service-account*.json", "application_default_credentials.json", "token", ".token",
    "token.txt", "authorized_keys", "known_hosts", ".bash_history", ".zsh_history", ".python_history", "shadow",
    "gshadow", "*.ovpn", "*.age",
)  # fmt: skip
_SECRET_NAME = re.compile("|".join(translate(pattern) for pattern in _SECRET_FILES))


def holds_secrets(parts: Sequence[str]) -> bool:
    """Whether a path, by its parts, is that of a file of secrets; upper and lower case alike."""
    lowered = [part.casefold() for part in parts]
    if any(part in _SECRET_FOLDERS for part in lowered):
        return True
    return any(_SECRET_NAME.match(part) for part in lowered)
