"""Certificates, made by openssl's command."""

import functools
import pathlib
import subprocess
import tempfile


@functools.cache
def pair(name):
    """PEM texts of a certificate for a name, and of its key."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = pathlib.Path(folder) / "cert", pathlib.Path(folder) / "key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
                        "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        return cert.read_text(), key.read_text()
