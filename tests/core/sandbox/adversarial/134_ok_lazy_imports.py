# Modules that nothing has imported yet, some with shared libraries of their own.
import bz2, email.message, html.parser, http.client, lzma, sqlite3, xml.etree.ElementTree, zoneinfo
import concurrent.futures, difflib, ctypes, graphlib, ipaddress, logging, pathlib, tempfile, unittest
def solve(n):
    import wave
    db = sqlite3.connect(':memory:')
    r = 1
    for i in range(2, n + 1): r = db.execute('select ? * ?', (r, i)).fetchone()[0]
    return r
