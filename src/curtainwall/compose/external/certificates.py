"""The certificates that external agents trust, in a container or not."""

import os
from pathlib import Path

from curtainwall.egress import Egress

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def trusted_certificates(egress: Egress) -> str:
    """Return the certificates that an external agent trusts: ours, and for tunnels, those that this machine trusts."""
    bundle = next((Path(path) for path in _BUNDLES if os.path.isfile(path)), None)
    system = "" if bundle is None else bundle.read_text(encoding="utf-8", errors="replace")
    return f"{egress.authority.certificate.decode()}\n{system}"
