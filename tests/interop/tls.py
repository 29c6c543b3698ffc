#!/usr/bin/env python3
"""TLS of squall flows against OpenSSL: Squall's clients with nginx, curl and openssl s_client with
Squall's servers, over a veth pair that loses frames; certificates, names, protocols, tickets,
early data, versions, ciphers and groups, and the counts of failed handshakes. tshark reads the
requests in a capture, with the secrets that Squall has written. nginx, curl, h2load and nghttp also
use HTTP/2, nginx and curl HTTP/1.1 in place of it, and headers of the PROXY protocol, with TLS and
without.

Needs root, nginx, curl, curl_cffi, openssl, tcpdump and tshark; $SQUALL is target/debug/squall unless set.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from flows import (
    LOCAL,
    REMOTE,
    V4,
    V6,
    Nginx,
    Served,
    counted,
    flows,
    hash_of_body,
    inside,
    network,
)
from hosts import captured
from hosts import server as running
from tools import MALFORMED, Failed, run, same

LOSSY = "af_packet:va,drop=0.01,reorder=0.01,seed=3"
PAGE = 32 * 1024
BODY = 4 << 20
# Another address of nginx, where it refuses early data.
REFUSING = "10.77.0.2"
# Suites of a browser's hello that openssl chooses and Squall does not speak.
UNSPOKEN = ["TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_128_GCM_SHA256"]
# The pattern of which Squall's servers send a body.
FILLER = b"squall serves octets\n"

HTTPS = """
  log_format tls '$request_uri $status $body_bytes_sent $ssl_protocol $ssl_session_reused $ssl_server_name $ssl_alpn_protocol';
  server {{ listen 443 ssl; root {folder}/www; access_log {folder}/tls.log tls; ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key; }}
  server {{ listen 444 ssl; root {folder}/www; access_log {folder}/tls.log tls; ssl_protocols TLSv1.3; keepalive_timeout 0;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    ssl_client_certificate {folder}/ca.pem; ssl_verify_client on; }}
  log_format h2 '$request_uri $status $body_bytes_sent $server_protocol $http_x_stream';
  server {{ listen 446 ssl http2; listen 82 http2; root {folder}/www; access_log {folder}/tls.log h2; ssl_protocols TLSv1.3;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key; }}
  server {{ listen 83 http2; root {folder}/www; access_log {folder}/tls.log h2; http2_max_concurrent_streams 2; }}
  log_format early '$request_uri $status $body_bytes_sent $ssl_session_reused $server_protocol';
  server {{ listen 453 ssl http2; access_log {folder}/tls.log early; ssl_protocols TLSv1.3; ssl_early_data on;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    location / {{ return 200 "early$ssl_early_data"; }} }}
  server {{ listen {refusing}:453 ssl http2; access_log {folder}/tls.log early; ssl_protocols TLSv1.3;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    location / {{ return 200 "early$ssl_early_data"; }} }}
  log_format proxied '$request_uri $status $proxy_protocol_addr $proxy_protocol_server_addr';
  server {{ listen 81 proxy_protocol; listen [::]:81 proxy_protocol; listen 445 ssl proxy_protocol; root {folder}/www;
    access_log {folder}/tls.log proxied; ssl_protocols TLSv1.3;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key; }}
"""


def certificates(folder):
    """Make a certificate authority, and a certificate signed by it for squall.test."""
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca, server = folder / "ca.pem", folder / "server.pem"
    run(
        *new,
        "-x509",
        "-days",
        2,
        "-subj",
        "/CN=squall tests",
        "-keyout",
        folder / "ca.key",
        "-out",
        ca,
    )
    run(
        *new,
        "-subj",
        "/CN=squall.test",
        "-keyout",
        folder / "server.key",
        "-out",
        folder / "server.csr",
    )
    (folder / "names").write_text("subjectAltName=DNS:squall.test\n")
    run(
        "openssl",
        "x509",
        "-req",
        "-days",
        2,
        "-in",
        folder / "server.csr",
        "-CA",
        ca,
        "-CAkey",
        folder / "ca.key",
        "-CAcreateserial",
        "-extfile",
        folder / "names",
        "-out",
        server,
    )


def tls(*options):
    return [word for option in options for word in ("--tls-option", option)]


def squall_clients(folder):
    v4 = "10.77.1.1-10.77.1.50"

    def get(count, *argv, users=5, url=f"https://{V4}/page", port="af_packet:va", clients=v4):
        log = folder / "tls.log"
        log.write_text("")
        common = ["--url", url, "--port", port, "--clients", clients, "-d", "30s"]
        report = flows(folder, "http", "--users", users, "--flows", count, *common, *argv)
        return report["flows"]["total"]["client"], report, log.read_text().splitlines()

    verified = [f"ca={folder}/ca.pem", "server_name=squall.test"]
    what = "verified, 1 % lost"
    role, report, log = get(50, "--requests", 2, *tls("alpn=h2,http/1.1", *verified), port=LOSSY)
    counted(what, report, "client", 50, 100)
    same(f"{what}: nginx says", set(log), {f"/page 200 {PAGE} TLSv1.3 . squall.test http/1.1"})
    same(f"{what}: nginx counts", len(log), 100)
    sessions = role["tls"]
    same(
        f"{what}: sessions",
        (sessions["handshakes"], sessions["resumed"], sessions["failed"]),
        (50, 0, {}),
    )
    same(f"{what}: times", sessions["handshake_ns"]["count"], 50)

    what = "resumed"
    role, report, log = get(20, *tls("resumption=true"), users=1)
    counted(what, report, "client", 20, 20)
    same(what, (role["tls"]["handshakes"], role["tls"]["resumed"]), (20, 19))
    same(
        f"{what}: nginx says",
        sorted(log),
        [f"/page 200 {PAGE} TLSv1.3 . - -"] + [f"/page 200 {PAGE} TLSv1.3 r - -"] * 19,
    )

    for option, protocol in [([], "HTTP/1.1"), (["--http2"], "HTTP/2.0")]:
        what = f"early data, {protocol}"
        argv = [*option, "--requests", 2, *tls("early_data=true")]
        role, report, log = get(10, *argv, users=1, url=f"https://{V4}:453/page")
        counted(what, report, "client", 10, 20)
        # Six octets are an answer before the end of the handshake: nginx may read early data later.
        found = [log.count(f"/page 200 {line} {protocol}") for line in ("5 .", "5 r", "6 r")]
        same(f"{what}: nginx says {found}", (found[0], sum(found), found[2] > 0), (2, 20, True))
        sessions = role["tls"]
        figures = [sessions[f"early_{kind}"] for kind in ("offered", "accepted", "refused")]
        same(f"{what}: figures", (sessions["resumed"], figures), (9, [9, 9, 0]))
        same(f"{what}: octets", sessions["early_octets_accepted"] > 9 * 20, True)
        same(f"{what}: times", role["first_byte_from_start_ns"]["count"], 10)

    what = "early data that nginx refuses"
    (folder / "tls.log").write_text("")
    argv = ["http", "--servers", V4, "--servers", REFUSING, "--listen", 453, "--clients", v4]
    argv += tls("early_data=true", "server_name=squall.test")
    argv += ["--users", 1, "--flows", 20, "--port", LOSSY, "-d", "30s"]
    report = flows(folder, "app", *argv)
    sessions = counted(what, report, "client", 20, 20)["tls"]
    figures = [sessions[f"early_{kind}"] for kind in ("offered", "accepted", "refused")]
    same(f"{what}: {figures}", (figures[0], figures[2] > 0), (figures[1] + figures[2], True))
    log = (folder / "tls.log").read_text().splitlines()
    same(f"{what}: nginx counts", [line.split()[:2] for line in log], [["/", "200"]] * 20)

    what = "a certificate of ours, and a server that closes first"
    shown = tls(f"certificate={folder}/server.pem", f"key={folder}/server.key")
    _, report, log = get(50, *shown, url=f"https://{V4}:444/page")
    counted(what, report, "client", 50, 50)
    same(f"{what}: nginx says", log, [f"/page 200 {PAGE} TLSv1.3 . - -"] * 50)
    role, _, _ = get(5, url=f"https://{V4}:444/page")
    same(f"{what}: without it", role["http"], {"4xx": 5})

    for version, server, url, clients, source in [
        ("v1", V4, f"http://{V4}:81/page", v4, "203.0.113.7"),
        ("v2", V4, f"https://{V4}:445/page", v4, "203.0.113.7"),
        ("v1", V6, f"http://[{V6}]:81/page", "fd77::1:1-fd77::1:50", "2001:db8::7"),
        ("v2", V6, f"http://[{V6}]:81/page", "fd77::1:1-fd77::1:50", "2001:db8::7"),
    ]:
        what = f"PROXY {version}, {url}"
        options = ["--proxy-protocol", version, "--proxy-option", f"sources={source}"]
        role, report, log = get(20, *options, url=url, clients=clients, port=LOSSY)
        counted(what, report, "client", 20, 20)
        same(f"{what}: nginx says", log, [f"/page 200 {source} {server}"] * 20)

    options = ["--http2", "--streams", "4", "--requests", "8", "--check", f"length {PAGE}"]
    options += ["--header", "X-Stream: ${random:hex:4}"]
    for url in [f"https://{V4}:446/page", f"http://{V4}:82/page"]:
        what, capture, keys = f"HTTP/2, {url}", folder / "h2.pcap", folder / "h2.keys"
        role, report, log = get(20, *options, url=url, port=LOSSY)
        counted(what, report, "client", 20, 160)
        same(f"{what}: nginx counts", len(log), 160)
        found = {line.rsplit(" ", 1)[0] for line in log}
        same(f"{what}: nginx says", found, {f"/page 200 {PAGE} HTTP/2.0"})
        same(f"{what}: header fields", len({line.split()[-1] for line in log}) > 100, True)
        found = role["http2"]
        figures = (found["connections"], found["streams"], found["heads_received"])
        same(f"{what}: figures", figures, (20, 160, 160))
        same(f"{what}: violations", (found["violations"], found["resets_received"]), ({}, {}))
        small = found["compressed_octets_sent"] * 2 < found["head_octets_sent"]
        same(f"{what}: compressed to less than a half", small, True)
        with captured(capture, "tcp port 446 or tcp port 82"):
            secrets = ["--key-log", keys] if url.startswith("https") else []
            get(2, *options, *secrets, url=url)
        read = ["tshark", "-r", capture, "-d", "tcp.port==82,http2"]
        read += ["-o", f"tls.keylog_file:{keys}"]
        paths = run(*read, "-Y", "http2", "-T", "fields", "-e", "http2.headers.path").stdout
        same(f"{what}: requests that tshark reads", paths.count("/page"), 16)
        wrong = f'{MALFORMED} or (http2 and _ws.expert.severity == "Error")'
        same(f"{what}: malformed frames", run(*read, "-Y", wrong).stdout, "")

    what = "a server with fewer streams than the client"
    role, report, log = get(20, *options, url=f"http://{V4}:83/page", port=LOSSY)
    counted(what, report, "client", 20, 160)
    same(f"{what}: nginx counts", len(log), 160)
    found = (role["http2"]["streams"], role["http2"]["resets_received"], role["http2"]["repeated"])
    same(f"{what}: streams", found, (160, {}, 0))

    what = "HTTP/1.1 in place of HTTP/2"
    role, report, log = get(20, *options, "--http2-fallback", port=LOSSY)
    counted(what, report, "client", 20, 160)
    same(f"{what}: nginx says", log, [f"/page 200 {PAGE} TLSv1.3 . - http/1.1"] * 160)
    found = (role["http2"]["fallbacks"], role["http2"]["connections"])
    same(f"{what}: connections", found, (20, 0))

    what = "TLS 1.2"
    role, report, log = get(5, *tls("versions=1.2", *verified))
    counted(what, report, "client", 5, 5)
    same(f"{what}: nginx says", set(log), {f"/page 200 {PAGE} TLSv1.2 . squall.test -"})

    for version, cipher, group, expected in [
        ("1.3", "TLS_CHACHA20_POLY1305_SHA256", "secp384r1", ("0x1303", "24")),
        # The curve of the certificate has to be among the groups (RFC 8422 section 5.1).
        ("1.2", "ECDHE-ECDSA-AES256-GCM-SHA384", "secp256r1", ("0xc02c", "23")),
    ]:
        what, capture, keys = f"secrets of TLS {version}", folder / "tls.pcap", folder / "keys.txt"
        options = tls(f"versions={version}", f"ciphers={cipher}", f"groups={group}")
        with captured(capture, "tcp port 443"):
            _, report, log = get(5, *options, "--key-log", keys)
        counted(what, report, "client", 5, 5)
        same(f"{what}: nginx counts", len(log), 5)
        same(f"{what}: only for their owner", keys.stat().st_mode & 0o777, 0o600)
        read = ["tshark", "-r", capture, "-o", f"tls.keylog_file:{keys}"]
        requests = run(*read, "-Y", 'http.request.uri == "/page"').stdout.splitlines()
        same(f"{what}: requests that tshark reads", len(requests), 5)
        chosen = run(
            *read,
            "-Y",
            "tls.handshake.type == 2",
            "-T",
            "fields",
            "-e",
            "tls.handshake.ciphersuite",
            "-e",
            "tls.handshake.extensions_key_share_group",
        ).stdout
        chosen = {tuple(line.split("\t")) for line in chosen.splitlines()}
        # In TLS 1.2 the group is in a message of its own.
        same(f"{what}: chosen", chosen, {expected if version == "1.3" else (expected[0], "")})
        curves = run(
            *read,
            "-Y",
            "tls.handshake.server_named_curve",
            "-T",
            "fields",
            "-e",
            "tls.handshake.server_named_curve",
        ).stdout
        curves = {int(curve, 16) for curve in curves.split()}
        same(f"{what}: curves", curves, set() if version == "1.3" else {int(expected[1])})

    for what, error, why, argv in [
        (
            "another name",
            "tls_certificate",
            "not valid for name",
            {"argv": tls(*verified, "server_name=a.test")},
        ),
        (
            "no TLS there",
            "tls_broken",
            "corrupt message",
            {"argv": [], "url": f"https://{V4}:80/page"},
        ),
    ]:
        role, _, log = get(5, *argv.pop("argv"), **argv)
        same(f"{what}: errors", role["protocol_errors"], {error: 5})
        same(f"{what}: failed", sum(role["failed"].values()), 5)
        if not all(why in text for text in role["tls"]["failed"]):
            raise Failed(f"{what}: {role['tls']['failed']}")
        same(f"{what}: no request", log, [])

    (folder / "www/large").write_bytes(os.urandom(BODY))
    role, report, _ = get(1, url=f"https://{V4}/large", port=LOSSY)
    counted("4 MB, 1 % lost", report, "client", 1, 1)
    same("4 MB: whole", role["received_octets"] >= BODY, True)
    print("ok: our clients and nginx")


def given_hellos(folder):
    """Run clients with the hellos of browsers against nginx, and openssl s_server, which makes the
    choices that nginx does not make.
    """
    capture, keys, log = folder / "hello.pcap", folder / "hello.keys", folder / "s_server.log"
    count = 4
    verified = tls(f"ca={folder}/ca.pem", "server_name=squall.test", "resumption=true")
    http1 = tls("alpn=http/1.1")
    keys.write_text("")
    # Hellos and requests of HTTP/1, by port.
    expected = {}

    def get(browser, port, *options, requests=1):
        report = flows(
            folder,
            "http",
            *["--url", f"https://{V4}:{port}/page", "--port", "af_packet:va"],
            *["--clients", "10.77.1.1-10.77.1.50", "-d", "30s", "--key-log", folder / "keys.txt"],
            *["--users", 1, "--flows", count, "--hello", browser, "--requests", requests],
            *["--check", f"length {PAGE}", *options, *verified],
        )
        keys.write_text(keys.read_text() + (folder / "keys.txt").read_text())
        return report["flows"]["total"]["client"], report

    def nginx():
        what = "hello of chrome-131, nginx"
        role, report = get("chrome-131", 443, *http1, requests=3)
        counted(what, report, "client", count, 3 * count)
        same(f"{what}: resumed", role["tls"]["resumed"], count - 1)
        what += ", HTTP/2"
        role, report = get("chrome-131", 446, "--http2", requests=3)
        counted(what, report, "client", count, 3 * count)
        same(f"{what}: resumed", role["tls"]["resumed"], count - 1)
        same(f"{what}: violations", role["http2"]["violations"], {})
        expected.update({443: [count, 3 * count], 446: [count, 0]})

    rsa = [folder / "rsa.key", folder / "rsa.csr", folder / "rsa.pem"]
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=squall.test"]
    run(*new, "-keyout", rsa[0], "-out", rsa[1])
    sign = ["openssl", "x509", "-req", "-days", 2, "-in", rsa[1], "-CA", folder / "ca.pem"]
    sign += ["-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "names"]
    run(*sign, "-out", rsa[2])

    def s_server(port, what, options, cipher):
        what = f"hello of firefox-135, openssl s_server, {what}"
        files = ["-cert", rsa[2], "-key", rsa[0], "-WWW"]
        argv = ["env", "-C", folder / "www", "openssl", "s_server", "-accept", port, *files]
        ready = lambda: f":{port} " in run(*inside(REMOTE, "ss", "-ltn")).stdout
        with running([*argv, *options], log, ready):
            role, report = get("firefox-135", port, *http1)
        # The first hello has no key share of P-384.
        hellos = 2 * count if "P-384" in options else count
        if cipher in UNSPOKEN:
            same(f"{what}: errors", role["protocol_errors"], {"tls_incompatible": count})
            named = [cipher in why for why in role["tls"]["failed"]]
            same(f"{what}: the name of {cipher}", named, [True])
            expected[port] = [hellos, 0]
            return
        counted(what, report, "client", count, count)
        same(f"{what}: s_server counts", log.read_text().count("FILE:page"), count)
        same(f"{what}: cipher suites", role["tls"]["ciphers"], {cipher: count})
        # In TLS 1.2, s_server gives no other ticket when it resumes a session.
        same(f"{what}: resumed", role["tls"]["resumed"], count - 1)
        expected[port] = [hellos, count]

    tls13, tls12 = ["-tls1_3", "-ciphersuites"], ["-tls1_2", "-cipher"]
    with captured(capture, "tcp portrange 443-451"):
        nginx()
        for port, what, options, cipher in [
            (
                447,
                "another group",
                [*tls13, "TLS_AES_256_GCM_SHA384", "-groups", "P-384"],
                "TLS13_AES_256_GCM_SHA384",
            ),
            (
                448,
                "ChaCha20",
                [*tls13, "TLS_CHACHA20_POLY1305_SHA256", "-groups", "P-256"],
                "TLS13_CHACHA20_POLY1305_SHA256",
            ),
            (
                449,
                "TLS 1.2",
                [*tls12, "ECDHE-RSA-AES256-GCM-SHA384", "-verify", 1],
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            ),
            (450, "CBC", [*tls12, "ECDHE-RSA-AES128-SHA"], UNSPOKEN[0]),
            (451, "RSA", [*tls12, "AES128-GCM-SHA256"], UNSPOKEN[1]),
        ]:
            s_server(port, what, options, cipher)
    read = ["tshark", "-r", capture, "-o", f"tls.keylog_file:{keys}"]
    read += [word for port in range(443, 452) for word in ("-d", f"tcp.port=={port},tls")]
    wrong = f'{MALFORMED} or ((tls or http2) and _ws.expert.severity == "Error")'
    same("hellos: malformed", run(*read, "-Y", wrong).stdout, "")
    fields = ["tcp.dstport", "tls.handshake.extensions_server_name", "http.request.uri"]
    read += ["-Y", "tls.handshake.type == 1 or http.request.uri", "-T", "fields"]
    read += [word for field in fields for word in ("-e", field)]
    found = {port: [0, 0] for port in expected}
    for line in run(*read).stdout.splitlines():
        port, name, path = line.split("\t")
        found[int(port)][0] += name == "squall.test"
        found[int(port)][1] += path == "/page"
    same("hellos and requests that tshark reads, by port", found, expected)
    print("ok: hellos of browsers, nginx and openssl")


def squall_servers(folder):
    expected = hash_of_body(BODY, FILLER)
    own = tls(
        f"certificate={folder}/server.pem",
        f"key={folder}/server.key",
        "alpn=http/1.1",
        "resumption=true",
    )
    for what, options, client in [
        ("a certificate that was made", ["--tls"], ["-k", f"https://{Served.v4}/"]),
        (
            "one of an authority",
            own,
            [
                "--cacert",
                folder / "ca.pem",
                "--resolve",
                f"squall.test:443:{Served.v4}",
                "https://squall.test/",
            ],
        ),
    ]:
        with Served(folder, LOSSY, "--body", BODY, *options) as served:
            copy = folder / "copy"
            for _ in range(2):
                run(*inside(REMOTE, "curl", "-sS", "--max-time", 60, "-o", copy, *client))
                same(
                    f"{what}: curl: SHA-256",
                    hashlib.sha256(copy.read_bytes()).hexdigest(),
                    expected,
                )
        role = counted(what, served.report, "server", 2, 2)
        same(f"{what}: octets", role["sent_octets"] >= 2 * BODY, True)
        same(f"{what}: sessions", (role["tls"]["handshakes"], role["tls"]["failed"]), (2, {}))

    with Served(folder, "af_packet:va", "--body", "100", *own) as served:
        session = folder / "session"
        for more, expected in [(["-sess_out", session], "New"), (["-sess_in", session], "Reused")]:
            argv = [
                "openssl",
                "s_client",
                "-tls1_3",
                "-connect",
                f"{served.v4}:443",
                "-CAfile",
                folder / "ca.pem",
                "-verify_return_error",
                "-servername",
                "squall.test",
                "-alpn",
                "http/1.1",
                "-ign_eof",
                *more,
            ]
            done = subprocess.run(
                inside(REMOTE, *argv),
                input="GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                capture_output=True,
                text=True,
                timeout=30,
            )
            same(
                f"s_client {expected}",
                re.findall(r"^(New|Reused), (\S+),", done.stdout, re.M),
                [(expected, "TLSv1.3")],
            )
            for words in ["HTTP/1.1 200", "ALPN protocol: http/1.1", "squall serves octets"]:
                if words not in done.stdout:
                    raise Failed(
                        f"s_client {expected}: no {words!r} in {done.stdout} {done.stderr}"
                    )
        # Clients with another TLS version, and clients without TLS.
        for argv in [
            ["-k", "--tls-max", "1.2", f"https://{served.v4}/"],
            [f"http://{served.v4}:443/"],
        ]:
            subprocess.run(
                inside(REMOTE, "curl", "-sS", "--max-time", "10", *argv),
                capture_output=True,
                check=False,
            )
    role = served.report["flows"]["total"]["server"]
    same(
        "s_client and others",
        (role["tls"]["handshakes"], role["tls"]["resumed"], role["http"]),
        (2, 1, {"2xx": 2}),
    )
    same("others", role["protocol_errors"], {"tls_incompatible": 1, "tls_broken": 1})
    same("flows left", role["active"], 0)

    early_servers(folder)

    # BoringSSL as in Chrome, which has no other group in common with the server.
    fetch = (
        "from curl_cffi import requests\n"
        "got = requests.get({url!r}, impersonate='chrome131', http_version='v1', verify=False)\n"
        "print(got.status_code, len(got.content))"
    )
    hybrid = tls("groups=X25519MLKEM768")
    with Served(folder, "af_packet:va", "--body", "100", *hybrid) as served:
        argv = [sys.executable, "-c", fetch.format(url=f"https://{served.v4}/")]
        same("X25519MLKEM768", run(*inside(REMOTE, *argv)).stdout, "200 100\n")
    role = served.report["flows"]["total"]["server"]
    same("X25519MLKEM768: sessions", (role["tls"]["handshakes"], role["tls"]["failed"]), (1, {}))

    sent = folder / "sent"
    sent.write_bytes(os.urandom(300_000))
    # Three streams at a time over a connection; without TLS one, because curl 7.88 cannot use such a
    # connection again (nor with nginx).
    for scheme, options, client, streams in [
        ("https", ["--tls"], ["-k", "--http2", "-Z"], 3),
        ("http", [], ["--http2-prior-knowledge"], 1),
    ]:
        with Served(folder, LOSSY, "--http2", "--body", BODY, *options) as served:
            url = f"{scheme}://{served.v4}/"
            copies = [folder / f"copy{i}" for i in range(streams)]
            several = [word for copy in copies for word in ("-o", copy, url)]
            curl = ["curl", "-sS", "--max-time", "60", "-w", "%{http_version} ", *client]
            done = run(*inside(REMOTE, *curl, *several))
            same(f"HTTP/2, {scheme}: curl", done.stdout, "2 " * streams)
            for copy in copies:
                hash_of_copy = hashlib.sha256(copy.read_bytes()).hexdigest()
                same(f"HTTP/2, {scheme}: SHA-256", hash_of_copy, hash_of_body(BODY, FILLER))
            posted = ["--data-binary", f"@{sent}", "-o", copies[0], url]
            done = run(*inside(REMOTE, *curl, *posted))
            same(f"HTTP/2, {scheme}: POST", done.stdout, "2 ")
        what = f"HTTP/2, {scheme}"
        role = served.report["flows"]["total"]["server"]
        same(
            f"{what}: answers", (role["http"], role["protocol_errors"]), ({"2xx": streams + 1}, {})
        )
        same(f"{what}: streams", role["http2"]["streams"], streams + 1)
        same(f"{what}: all are over", (role["active"], role["failed"]), (0, {}))
        same(f"{what}: violations", role["http2"]["violations"], {})
        same(f"{what}: received", role["received_octets"] > 300_000, True)

    with Served(folder, LOSSY, "--http2", "--http2-fallback", "--tls", "--body", "100") as served:
        for option, expected in [("--http1.1", "1.1"), ("--http2", "2"), ("--no-alpn", "1.1")]:
            curl = ["curl", "-sSk", "--max-time", "60", "-o", copies[0], "-w", "%{http_version}"]
            done = run(*inside(REMOTE, *curl, option, f"https://{served.v4}/", "-o", copies[0]))
            same(f"curl {option}", done.stdout, expected)
    role = served.report["flows"]["total"]["server"]
    found = (role["http2"]["fallbacks"], role["http2"]["connections"], role["http"])
    same("HTTP/1.1 and HTTP/2 by one server", found, (2, 1, {"2xx": 3}))
    same("both: errors", (role["active"], role["failed"], role["protocol_errors"]), (0, {}, {}))

    if shutil.which("h2load") and shutil.which("nghttp"):
        nghttp2(folder)
    else:
        print("SKIPPED: needs h2load and nghttp")

    header = ["--tls", "--proxy-protocol", "v1"]
    with Served(folder, LOSSY, "--body", "100", *header) as served:
        for option, expected in [(["--haproxy-protocol"], "200"), ([], "000")]:
            argv = ["-sSk", "--max-time", "10", "-o", folder / "copy", "-w", "%{http_code}"]
            done = subprocess.run(
                inside(REMOTE, "curl", *argv, *option, f"https://{served.v4}/"),
                capture_output=True,
                text=True,
                check=False,
            )
            same(f"PROXY: curl {option}", done.stdout, expected)
    role = served.report["flows"]["total"]["server"]
    found = (role["established"], role["http"], role["protocol_errors"])
    same("PROXY: curl", found, (1, {"2xx": 1}, {"proxy_missing": 1}))
    print("ok: our servers, curl and openssl")


def early_servers(folder):
    """Let openssl s_client send early data to a Squall server, which answers them before the
    handshake is complete, and refuses a ticket that was used before (RFC 8446 section 8.1).
    """
    request, session = folder / "request", folder / "early"
    request.write_text("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    with Served(folder, "af_packet:va", "--body", "100", *tls("early_data=true")) as served:
        for what, options, text, expected in [
            ("to get a ticket", ["-sess_out", session], request.read_text(), "was not sent"),
            ("with early data", ["-sess_in", session, "-early_data", request], "", "was accepted"),
            (
                "with a used ticket",
                ["-sess_in", session, "-early_data", request],
                request.read_text(),
                "was rejected",
            ),
        ]:
            argv = ["openssl", "s_client", "-tls1_3", "-connect", f"{served.v4}:443", "-ign_eof"]
            done = subprocess.run(
                inside(REMOTE, *argv, *options),
                input=text,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            for words in [f"Early data {expected}", "HTTP/1.1 200", "squall serves octets"]:
                if words not in done.stdout:
                    raise Failed(f"s_client {what}: no {words!r} in {done.stdout} {done.stderr}")
    role = served.report["flows"]["total"]["server"]
    sessions = role["tls"]
    figures = (sessions["handshakes"], sessions["resumed"], sessions["early_accepted"])
    same("s_client, early data", (figures, role["http"]), ((3, 1, 1), {"2xx": 3}))
    same("s_client: octets", sessions["early_octets_accepted"], request.stat().st_size)


def nghttp2(folder):
    """Run the clients of nghttp2 with Squall's servers: the counts of both ends are equal, also if
    nghttp has a small window.
    """
    for scheme, options in [("https", ["--tls"]), ("http", [])]:
        what = f"nghttp2, {scheme}"
        with Served(folder, "af_packet:va", "--http2", "--body", 10_000, *options) as served:
            url = f"{scheme}://{served.v4}/"
            load = ["h2load", "-n", 600, "-c", 4, "-m", 20, url]
            done = run(*inside(REMOTE, *load)).stdout
            found = re.search(r"^requests: .*$", done, re.M)[0]
            expected = "600 total, 600 started, 600 done, 600 succeeded, 0 failed, 0 errored"
            same(what, found.split(", 0 timeout")[0], f"requests: {expected}")
            data = int(re.search(r"\((\d+)\) data", done)[1])
            same(f"{what}: h2load: octets", data, 600 * 10_000)
            done = run(*inside(REMOTE, "nghttp", "-w", 14, "-W", 15, "-m", 30, url)).stdout
            same(f"{what}: nghttp: octets", len(done), 30 * 10_000)
        role = served.report["flows"]["total"]["server"]
        same(f"{what}: answers", (role["http"], role["protocol_errors"]), ({"2xx": 630}, {}))
        found = (role["http2"]["connections"], role["http2"]["streams"])
        same(f"{what}: streams", found, (5, 630))
        same(f"{what}: violations", role["http2"]["violations"], {})
        same(f"{what}: all are over", (role["active"], role["failed"]), (0, {}))


def main():
    if os.geteuid() != 0:
        return print("SKIPPED: needs root")
    for tool in ["nginx", "curl", "openssl", "tcpdump", "tshark"]:
        if shutil.which(tool) is None:
            return print(f"SKIPPED: needs {tool}")
    with tempfile.TemporaryDirectory(prefix="squall-tls-") as name:
        folder = pathlib.Path(name)
        try:
            certificates(folder)
            network()
            run("ip", "-n", REMOTE, "addr", "add", f"{REFUSING}/16", "dev", "vb")
            with Nginx(folder, HTTPS.format(folder=folder, refusing=REFUSING)):
                squall_clients(folder)
                given_hellos(folder)
            squall_servers(folder)
        except Failed as failed:
            sys.exit(f"FAILED: {failed}")
        finally:
            for namespace in [LOCAL, REMOTE]:
                subprocess.run(["ip", "netns", "del", namespace], check=False)


main()
