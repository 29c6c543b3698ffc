"""Checks of the results of squall experiment kute, tcpreplay and tcpdump: numbers are consistent,
and match those of programs that share no code with Squall (tcpdump, softflowd, nfcapd). Speeds are
not checked. experiments.py --full runs the short forms and calls these checks.
"""

import math

from tools import Failed, same


def rows(result, table):
    """Return the measured rows of a table, by the names of its columns."""
    (found,) = [each for each in result["tables"] if each["id"] == table]
    columns = [column["name"] for column in found["columns"]]
    measured = [row["cells"] for row in found["rows"] if row["source"] == "measured"]
    return [dict(zip(columns, cells, strict=True)) for cells in measured]


def figure(result, name):
    (found,) = [each for each in result["figures"] if each["id"] == name]
    return {series["label"]: series["points"] for series in found["series"]}


def near(what, found, expected, share=1e-6):
    if not math.isclose(found, expected, rel_tol=share, abs_tol=1e-9):
        raise Failed(f"{what}: found {found}, expected {expected}")


def kute(result):
    usable = [tool["name"] for tool in result["tools"] if tool["why_not"] is None]
    senders = rows(result, "senders")
    for sender in senders:
        if sender["Sender"] == "squall" and not sender["Mean, packets/s"]:
            raise Failed(f"nothing was sent: {sender}; {result['notes']}")
    for offered in rows(result, "offered"):
        arrived, recorded = offered["Arrived, packets/s"], offered["Recorded, packets/s"]
        if arrived is not None and not 0 <= recorded <= 1.0001 * arrived:
            raise Failed(f"more was recorded than arrived: {offered}")
    gaps = [row for row in rows(result, "gaps") if row["SD"] is not None]
    found = {(row["Sender"], row["Receiver"]) for row in gaps}
    if ("squall", "tcpdump") not in found and "tcpdump (receives)" in usable:
        raise Failed(f"tcpdump recorded no gaps of Squall: {result['notes']}")
    for row in gaps:
        near(f"SD over mean, {row}", row["SD over mean"], row["SD"] / row["Mean gap"])
        if row["Receiver SD"] is not None:
            rest = max(0.0, row["SD"] ** 2 - row["Receiver SD"] ** 2)
            near(f"equation (1), {row}", row["Sender's error"], math.sqrt(rest))
    for each in result["figures"]:
        if each["id"].startswith("distribution-"):
            for series in each["series"]:
                near("shares of gaps", sum(y for _, y in series["points"]), 1.0)
    print(f"kute: {len(senders)} maximum rates, {len(gaps)} deviations of gaps")


def tcpreplay(result):
    for row in rows(result, "expiry"):
        same(f"expiry, {row}", row["Flows reported"], row["Flows expected"])
    for row in rows(result, "rates"):
        if row["Tool"] == "squall":
            same(f"flows, {row}", row["Flows reported"], row["Flows expected"])
    collected = rows(result, "collector")
    missing = [each for each in result["missing"] if "collector" in each["what"]]
    if not collected and len(missing) < 2:
        raise Failed(f"the collector has no result: {result['notes']}")
    for row in collected:
        same(f"packets collected, {row}", row["Packets collected"], row["Packets"])
        same(f"flows collected, {row}", row["Exact"], row["Flows"])
        same(f"extra flows, {row}", row["Extra"], 0)
    print(f"tcpreplay: {sum(row['Exact'] for row in collected):.0f} flows exact at the collector")


def tcpdump(result):
    loss = rows(result, "loss")
    for row in loss:
        if row["Lost"] is not None and not 0 <= row["Lost"] <= 1:
            raise Failed(f"an impossible loss: {row}")
        asked, actual = row["Requested, Mb/s"], row["Actual, Mb/s"]
        if isinstance(asked, float) and actual is not None and actual > 1.02 * asked:
            raise Failed(f"more was sent than asked for: {row}")
    actual = figure(result, "actual")
    same("lines of actual rates", len(actual), 5)
    for label, points in actual.items():
        same(f"requested rates of {label}", points, sorted(points))
    print(f"tcpdump: {len(loss)} steps, {sum(row['Lost'] is not None for row in loss)} judged")


CHECKS = {"kute": kute, "tcpreplay": tcpreplay, "tcpdump": tcpdump}
