"""Cost of the probe: worker CPU per request of the gateway `log-bypass --fixed`, in pairs.

All variants run at once on one CPU and are loaded in turn with a thousand requests each, in an order that is shuffled and then
reversed, so that what else the machine does falls on all of them. A ratio is to the mean of the two variants without
the probe, which show by how much equal ones differ; in brackets its 95 % interval.

Usage, as root: cost.py THROUGHLINE PROBE_DIRECTORY ROUNDS
"""

import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile

throughline, probe, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
FIVE = ["networks.zone_of", "routes.match", "rewrite.count", "limits.allow", "signature.of"]
REST = ["log.debug", "metrics.record", "access_phase", "content_phase", "log_phase"]


def names(of):
    return ", ".join(f"'gateway.{name}'" for name in of)


VARIANTS = {
    "no probe": None,
    "no probe again": None,
    "events": "counting = false",
    "0 calls": "",
    "5 calls": f"count = {{ {names(FIVE)} }}",
    "50 calls": f"count = {{ {names(FIVE + REST)}, 'ngx.now' }}",
}


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0])


def start(options, directory, port):
    command = [throughline, "lab", "run", "log-bypass", "--fixed", "--load", "none", "--json", "--port", str(port)]
    if options is not None:
        with tempfile.NamedTemporaryFile("w", suffix=".lua", dir=directory, delete=False) as file:
            file.write(f"package.path = '{probe}/?.lua;' .. package.path\n")
            file.write(f"assert(require('throughline').start {{ {options} }})\n")
        command += ["--prelude", file.name]
    lab = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ready = json.loads(lab.stdout.readline())
    return lab, ready["pids"]["workers"][0], ready["url"]


def trimmed_mean(values):
    """Without the tenth of the values at each end, which other programs on the machine make."""
    values = sorted(values)
    cut = len(values) // 10
    return statistics.mean(values[cut : len(values) - cut])


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BATCH, BATCHES = 50, 20


def load(pid, url):
    """Worker CPU per request in us over a thousand requests on one connection, fifty under way at a time."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port))) as connection:
        def batch():
            connection.sendall(REQUEST * BATCH)
            answers, received = 0, b""
            while answers < BATCH:
                received += connection.recv(1 << 16)
                answers = received.count(b"signed ")
            # The last body may still be under way; the end of it is not waited for by the next batch.
            while not received.endswith(b"0\r\n\r\n"):
                received += connection.recv(1 << 16)

        batch()
        before = cpu_ns(pid)
        for _ in range(BATCHES):
            batch()
        return (cpu_ns(pid) - before) / 1e3 / (BATCH * BATCHES)


with tempfile.TemporaryDirectory() as directory:
    labs = {}
    try:
        for index, (name, options) in enumerate(VARIANTS.items()):
            labs[name] = start(options, directory, 19300 + 10 * index)
        for _ in range(30):
            for lab, pid, url in labs.values():
                load(pid, url)
        logs = {name: [] for name in VARIANTS}
        costs = {name: [] for name in VARIANTS}
        for _ in range(rounds):
            order = list(VARIANTS)
            random.shuffle(order)
            cost = dict.fromkeys(VARIANTS, 0.0)
            for name in order + order[::-1]:
                _, pid, url = labs[name]
                cost[name] += load(pid, url) / 2
            base = (cost["no probe"] + cost["no probe again"]) / 2
            for name in VARIANTS:
                costs[name].append(cost[name])
                logs[name].append(math.log(cost[name] / base))
        for name in VARIANTS:
            again = sorted(trimmed_mean(random.choices(logs[name], k=rounds)) for _ in range(1000))
            low, mid, high = (math.exp(x) for x in (again[25], trimmed_mean(logs[name]), again[974]))
            print(f"{name:15} {statistics.median(costs[name]):6.2f} us/request  ratio {mid:.4f} ({low:.4f} to {high:.4f})")
    finally:
        for lab, _, _ in labs.values():
            lab.terminate()
        for lab, _, _ in labs.values():
            lab.wait()
