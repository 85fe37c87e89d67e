#!/usr/bin/env python3
"""make_wheel.py FOLDER VERSION PLATFORM PROGRAM LICENCE README: a wheel that carries the program, so that pip puts it
where it puts scripts. The same inputs and $SOURCE_DATE_EPOCH give the same bytes."""

import base64
import hashlib
import os
import sys
import time
import zipfile

folder, version, platform, program, licence, readme = sys.argv[1:]
tag = f"py3-none-{platform}"
info = f"tern-{version}.dist-info"
# A zip has no earlier year than 1980.
when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]


def read(path):
    with open(path, "rb") as f:
        return f.read()


metadata = f"""Metadata-Version: 2.1
Name: tern
Version: {version}
Summary: Run language models on this machine
License: Apache-2.0
Requires-Python: >=3.7
Description-Content-Type: text/markdown

""".encode() + read(readme)
files = [
    (f"tern-{version}.data/scripts/tern", read(program), 0o755),
    (f"{info}/METADATA", metadata, 0o644),
    (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tern\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
    (f"{info}/licenses/LICENSE", read(licence), 0o644),
]
record = ""
for name, data, _ in files:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record += f"{name},sha256={digest},{len(data)}\n"
record += f"{info}/RECORD,,\n"
files.append((f"{info}/RECORD", record.encode(), 0o644))
with zipfile.ZipFile(os.path.join(folder, f"tern-{version}-{tag}.whl"), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    for name, data, mode in files:
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        z.writestr(entry, data)
