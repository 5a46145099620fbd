"""A server of Google's and of Azure's object stores, as far as gcsfs and adlfs ask it; it counts, and can refuse."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

SECRET = base64.b64encode(b"correct-horse-battery-staple").decode()


class CloudServer:
    """The objects of one bucket, `data`, at a free port until `close`."""

    def __init__(self, protocol):
        self.objects = {}  # Bytes and generation, by key.
        self.counts = Counter()
        self.refusals = []  # Status, content type and body of the next answers.
        self.page = 1000
        handler = {"gs": _Google, "az": _Azure}[protocol]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"cloud": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.root = f"{protocol}://data/root"
        account = f"AccountName=me;AccountKey={SECRET};BlobEndpoint={self.address}/me;"
        self.options = {
            "gs": {"token": "anon", "endpoint_url": self.address},
            "az": {"connection_string": f"DefaultEndpointsProtocol=http;{account}"},
        }[protocol]

    def put(self, key, data):
        _, generation = self.objects.get(key, (b"", 1_700_000_000_000_000))
        self.objects[key] = data, generation + 1

    def listed(self, prefix, delimiter, after):
        """Return a page of keys, prefixes, and the name to go on after."""
        names = {}
        for key in sorted(self.objects):
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                names[prefix + head + slash if slash else key] = bool(slash)
        found = [name for name in names if name > after]
        page = found[: self.page]
        keys, prefixes = ([name for name in page if names[name] is is_prefix] for is_prefix in (False, True))
        return keys, prefixes, page[-1] if len(found) > len(page) else ""

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: CloudServer

    def log_message(self, *_):
        """Say nothing."""

    def answer(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        what = self.what(url.path, body)
        self.cloud.counts[what.__name__] += 1
        if self.cloud.refusals:
            status, kind, text = self.cloud.refusals.pop(0)
            self.answer(status, text.encode(), kind)
        else:
            what()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # The base class calls them so.

    def some(self, data):
        """Return the status, the bytes and the header of the range that is wanted."""
        span = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("x-ms-range") or self.headers.get("Range") or "")
        if span is None:
            return 200, data, {}
        part = data[int(span[1]) : int(span[2] or len(data)) + 1]
        if not part:
            return 416, b"", {}
        return 206, part, {"content_range": f"bytes {span[1]}-{int(span[1]) + len(part) - 1}/{len(data)}"}


class _Google(_Handler):
    def what(self, path, body):
        kind, _, key = path.rpartition("/o")[0], *path.partition("/o/")[1:]
        self.key, self.body = unquote(key), body
        if kind.startswith("/upload"):
            return self.write
        if kind.startswith("/download"):
            return self.read
        return self.state if key else self.list

    def resource(self, key):
        data, generation = self.cloud.objects[key]
        times = {"timeCreated": "2023-11-14T22:13:20.123Z", "updated": "2023-11-15T00:00:00.000Z"}
        resource = {"name": key, "bucket": "data", "size": str(len(data)), "generation": str(generation)}
        return resource | times | {"etag": "metadata"}

    def list(self):
        keys, prefixes, after = self.cloud.listed(
            self.query.get("prefix", ""), self.query.get("delimiter", ""), self.query.get("pageToken", "")
        )
        page = {"kind": "storage#objects", "items": [*map(self.resource, keys)], "prefixes": prefixes}
        self.answer(200, json.dumps(page | ({"nextPageToken": after} if after else {})).encode())

    def state(self):
        found = self.key in self.cloud.objects
        self.answer(200 if found else 404, json.dumps(self.resource(self.key) if found else {}).encode())

    def read(self):
        data, generation = self.cloud.objects.get(self.key, (None, 0))
        if data is None:
            self.answer(404)
        else:
            status, part, headers = self.some(data)
            self.answer(status, part, "text/plain", x_goog_generation=generation, etag="metadata", **headers)

    def write(self):
        about, data = self.body.removesuffix(b"\n--==0==--").split(b"\n--==0==", 1)
        key = json.loads(about.partition(b"\n\n")[2])["name"]
        self.cloud.put(key, data.partition(b"\n\n")[2])
        self.answer(200, json.dumps(self.resource(key)).encode())


class _Azure(_Handler):
    def what(self, path, body):
        self.key, self.body = unquote(path.removeprefix("/me/data").lstrip("/")), body
        if self.command == "PUT":
            return self.write
        if self.query.get("comp") == "list":
            return self.list
        return self.state if self.command == "HEAD" else self.read

    def about(self, generation):
        return {"etag": f'"0x{generation:X}"', "last_modified": formatdate(generation // 1_000_000, usegmt=True)}

    def list(self):
        prefix = self.query.get("prefix", "")
        keys, prefixes, after = self.cloud.listed(prefix, self.query.get("delimiter", ""), self.query.get("marker", ""))
        blobs = []
        for key in keys:
            data, generation = self.cloud.objects[key]
            about = self.about(generation)
            blobs.append(
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{about['last_modified']}</Last-Modified>"
                f"<Etag>{about['etag'].strip(chr(34))}</Etag><Content-Length>{len(data)}</Content-Length>"
                "<BlobType>BlockBlob</BlobType></Properties></Blob>"
            )
        blobs += [f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in prefixes]
        text = (
            f'<EnumerationResults ContainerName="data"><Prefix>{escape(prefix)}</Prefix><Blobs>{"".join(blobs)}</Blobs>'
            f"<NextMarker>{escape(after)}</NextMarker></EnumerationResults>"
        )
        self.answer(200, text.encode(), "application/xml")

    def state(self):
        data, generation = self.cloud.objects.get(self.key, (None, 0))
        if data is None:
            self.answer(404, x_ms_error_code="BlobNotFound")
        else:
            self.answer(200, data, "text/plain", x_ms_blob_type="BlockBlob", **self.about(generation))

    def read(self):
        data, generation = self.cloud.objects.get(self.key, (None, 0))
        if data is None:
            self.answer(404, x_ms_error_code="BlobNotFound")
        else:
            status, part, headers = self.some(data)
            self.answer(status, part, "text/plain", x_ms_blob_type="BlockBlob", **self.about(generation), **headers)

    def write(self):
        self.cloud.put(self.key, self.body)
        self.answer(201, **self.about(self.cloud.objects[self.key][1]))
