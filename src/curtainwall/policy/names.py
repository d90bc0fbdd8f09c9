"""File names that mean more than a file: those that hold secrets."""

_SECRET_FILES = frozenset(
    """
    .env .netrc _netrc .pgpass .my.cnf .htpasswd .git-credentials .npmrc .pypirc .dockercfg .s3cfg .boto
    id_rsa id_dsa id_ecdsa id_ed25519 credentials credentials.json credentials.toml secrets.json secrets.yaml secrets.yml secrets.toml
    service-account.json master.key .vault-token
    """.split()
)
_SECRET_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".asc")
_HARMLESS_ENV = (".env.example", ".env.sample", ".env.template", ".env.dist")


SECRET_PATTERNS = tuple(sorted((*_SECRET_FILES, ".env.*", *(f"*{ending}" for ending in _SECRET_ENDINGS))))
"""Patterns that match every such name, without regard to case; a few harmless ones among them."""


def is_secret_name(path: str) -> bool:
    """Tell whether a file is named like one that holds keys or passwords."""
    name = path.rpartition("/")[2].casefold()
    if name.startswith(".env."):
        return not name.endswith(_HARMLESS_ENV)
    return name in _SECRET_FILES or name.endswith(_SECRET_ENDINGS)
