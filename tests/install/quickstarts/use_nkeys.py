"""Sign a nonce with a seed, as a login of a NATS server does."""

import base64
import binascii

from strandline.nats.logins import Login

user = bytes([18 << 3 | 20 >> 2, 0]) + bytes(range(32))  # the prefixes of a seed, and of a user
checksum = binascii.crc_hqx(user, 0).to_bytes(2, "little")
login = Login(seed=base64.b32encode(user + checksum).decode().rstrip("="))
assert login.signature("a nonce")
