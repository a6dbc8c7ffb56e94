"""Ed25519 by the definition in RFC 8032, on whole numbers: what the tests sign and compare with. Slow, not safe."""

from __future__ import annotations

import hashlib

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
_ROOT = pow(2, (P - 1) // 4, P)
NEUTRAL = (0, 1)


def add(a, b):
    """Return the sum of two points (x, y)."""
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + y1 * x2) * pow(1 + product, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P
    return x, y


def multiply(number, point):
    """Return a point taken `number` times."""
    total = NEUTRAL
    while number:
        if number & 1:
            total = add(total, point)
        point = add(point, point)
        number >>= 1
    return total


def x_of(y, odd):
    """Return the x of a y, of the given lowest bit; None where the curve has no such point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * _ROOT % P
    if x * x % P != square or (x == 0 and odd):
        return None
    return x if x & 1 == odd else P - x


BASE = (x_of(4 * pow(5, -1, P) % P, 0), 4 * pow(5, -1, P) % P)


def encode(point):
    """Return the 32 bytes of a point."""
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(data):
    """Return the point of 32 bytes in its one spelling, None for other bytes."""
    value = int.from_bytes(data, "little")
    y, odd = value % 2**255, value >> 255
    if y >= P:
        return None
    x = x_of(y, odd)
    return None if x is None else (x, y)


def _secret(seed):
    digest = hashlib.sha512(seed).digest()
    number = int.from_bytes(digest[:32], "little")
    return number & (2**254 - 8) | 2**254, digest[32:]


def public_key(seed):
    """Return the public key of a secret seed of 32 bytes."""
    return encode(multiply(_secret(seed)[0], BASE))


def challenge(r, key, message):
    """Return the number that ties R, key and message."""
    return int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % ORDER


def sign(seed, message):
    """Return the signature of 64 bytes."""
    number, prefix = _secret(seed)
    key = encode(multiply(number, BASE))
    nonce = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % ORDER
    r = encode(multiply(nonce, BASE))
    return r + ((nonce + challenge(r, key, message) * number) % ORDER).to_bytes(32, "little")


def verify(key, signature, message):
    """Return whether [S]B = R + [k]A, with S below the order and every point in its one spelling."""
    point, r, s = decode(key), decode(signature[:32]), int.from_bytes(signature[32:], "little")
    if point is None or r is None or s >= ORDER:
        return False
    return multiply(s, BASE) == add(r, multiply(challenge(signature[:32], key, message), point))
