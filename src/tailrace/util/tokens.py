"""A bearer token in a file: the first line, which every client of an HTTP port has to send."""

LENGTH_MIN = 16  # fewer characters can be guessed
LENGTH_MAX = 4096


class BadToken(Exception):
    """The file cannot be read, or has no token that can be used. The message says what to do."""


def read_token(path: str) -> str:
    """Raises BadToken."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read(LENGTH_MAX + 1).split("\n", 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadToken(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    token = lines[0].strip()
    if not (LENGTH_MIN <= len(token) <= LENGTH_MAX and token.isascii() and token.isprintable() and " " not in token):
        raise BadToken(
            f"{path} has no token in its first line: write {LENGTH_MIN} or more letters, digits and signs, "
            f"without spaces, such as those of `openssl rand -base64 32 > {path}`"
        )
    return token
