"""Writes packs: Arrow files; each record batch is one block of randomly chosen samples.

>>> headrace.pack.write_pack(hr.open("/data/images"), "/data/pack")

`headrace docs pack-format` specifies a pack. `write_pack` reads any dataset through its index.
"""

from headrace.pack._plan import PackParameters
from headrace.pack._write import PackResult, write_pack

__all__ = ["PackParameters", "PackResult", "write_pack"]
