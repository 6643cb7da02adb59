"""TLS contexts, one per set of options."""

import functools
import socket
import ssl

from tailrace.client.errors import BadOption
from tailrace.client.options import Tls


@functools.lru_cache(maxsize=16)
def context_for(tls: Tls) -> ssl.SSLContext:
    """Raises BadOption if a file cannot be read, or has invalid content."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_text)
        if not (tls.check_hostname and tls.verify):
            context.check_hostname = False
        if not tls.verify:
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate_file is not None:
            password = tls.key_password if tls.key_password is not None else ""  # with None, OpenSSL would prompt
            context.load_cert_chain(tls.certificate_file, tls.key_file, password)
    except (OSError, ValueError) as error:
        files = [file for file in (tls.ca_file, tls.certificate_file, tls.key_file) if file]
        raise BadOption(f"TLS cannot be set up from {', '.join(files) or 'ssl.*'}: {error}") from None
    return context


def secure(plain: socket.socket, tls: Tls, host: str) -> ssl.SSLSocket:
    return context_for(tls).wrap_socket(plain, server_hostname=host)
