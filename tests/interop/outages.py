#!/usr/bin/env python3
"""Recovery, reset and the longest outage of a soak test through bridge.py, whose losses are the
ground truth. An attempt counts only if the generator kept its schedule, so scripts/test runs this
alone.
"""

import json
import os
import pathlib
import sys
import time

from methods import LINKS, Device, Failed, Lab, expect, figure

HERE = pathlib.Path(__file__).resolve()
# Seconds for attempts while other programs use the CPUs.
BUSY_LIMIT_S = 60


def loses_the_same_frames(lane, periods):
    """Check that the loss periods of a lane match those of the device, which counts frames in the
    same order."""
    arrived, sent = lane["arrived"], lane["sent"]
    inside, after = arrived["losses"], sent - arrived["end"]
    found = inside["periods"] + (arrived["first"] > 0) + (after > 0)
    longest = max(arrived["first"], inside["longest"], after)
    last = sent - 1 if after else inside["last"] if inside["periods"] else arrived["first"] - 1
    truth = (len(periods), max((frames for _, frames in periods), default=0))
    expect((found, longest) == truth, f"{lane}, the device: {periods}")
    if periods:
        at, frames = periods[-1]
        expect(last == at + frames - 1, f"{lane}, the device: {periods}")


def through_device(lab, bridge, method, *arguments):
    """Run a test through bridge.py. Return the outcome and the device; None if the generator missed
    the schedule of a trial: the device then lost frames of a different trial than intended."""
    ports = ["--port=A=af_packet:p0", "--port=B=af_packet:p1", "--one-way", "--repeats", "0"]
    common = [*ports, "--linger", "300ms", "--rest", "0.2", "--quick", "--json", "-"]
    # The 20 frames that test the path belong to no trial.
    counted = ["--direction", "a", "--from", "100", "--skip", "20"]
    with Device(lab, *counted, *bridge) as device:
        done = lab.exec(lab.squall, "test", method, *common, *arguments)
    expect(done.returncode in (0, 4), f"{method}: {done.returncode}\n{done.stderr}")
    found = json.loads(done.stdout)
    lanes = [one["measured"]["lanes"] for one in found["trials"]]
    # On a busy machine, the device may take one trial for two.
    if device.counters["trials"] != [sum(lane["sent"] for lane in of) for of in lanes]:
        return None
    for trial, of in enumerate(lanes):
        periods = device.periods(trial)
        lost = sum(lane["lost"] for lane in of)
        expect(lost == sum(frames for _, frames in periods), f"{of}, the device: {periods}")
        if len(of) == 1:
            loses_the_same_frames(of[0], periods)
    return (found, device) if not any(t["measured"]["not_kept"] for t in found["trials"]) else None


def patiently(until, attempt, *arguments):
    """Return the first result of several attempts that start before `until`; None on a busy
    machine."""
    while (result := attempt(*arguments)) is None and time.monotonic() < until:
        pass
    return result


def recovery(lab):
    """Test the last frame lost after the overload, with a device of 1,000 frames/s and a short
    queue."""
    settings = ["--tests", "recovery", "--frame-sizes", "128", "--resolution", "0.1"]
    settings += ["--max-rate", "1200pps", "--trial-s", "0.4", "--overload-s", "0.5"]
    # In the fourth trial, an outage from before the end of the overload to 80 frames later.
    limits = ["--rate", "1000", "--queue", "5", "--lose", "3:500:600"]
    result = through_device(lab, limits, "rfc2544", *settings)
    if result is None or len(result[1].counters["trials"]) != 4:
        return None
    found, device = result
    over, under = found["trials"][-1]["trial"]["lanes"]
    sent = found["trials"][-1]["measured"]["lanes"][0]["sent"]
    first, frames = device.periods(3)[-1]
    truth = (first + frames - 1 - sent) / under["rate_fps"]
    expect(over["rate_fps"] > 1000 and truth > 0.1, f"{over}: {truth}")
    return figure(found, "recovery/128"), truth, 1 / under["rate_fps"], "device"


def reset(lab, first, end, limit):
    """Test an outage in the trial after the search, from its frame `first` to before `end`."""
    settings = ["--tests", "reset", "--frame-sizes", "128", "--max-rate", "500pps"]
    settings += ["--trial-s", "0.3", "--reset-s", "1"]
    result = through_device(lab, ["--lose", f"1:{first}:{end}"], "rfc2544", *settings)
    if result is None or len(result[1].counters["trials"]) != 2:
        return None
    found, device = result
    gap = 1 / found["trials"][-1]["trial"]["lanes"][0]["rate_fps"]
    ((_, frames),) = device.periods(1)
    return figure(found, "reset/128"), (frames + 1) * gap, gap, limit


def soak(lab):
    """Test an outage from the end of one trial to the start of the next, longer than another
    one."""
    settings = ["--duration-s", "3", "--trial-s", "1", "--max-rate", "500pps", "--load", "0.4"]
    losses = ["--lose", "0:0:10", "--lose", "1:150:999", "--lose", "2:0:40"]
    result = through_device(lab, losses, "soak", *settings, "--frame-size", "128")
    if result is None or len(result[1].counters["trials"]) != 3:
        return None
    found, device = result
    frames = device.periods(1)[-1][1] + device.periods(2)[0][1]
    return figure(found, "longest_outage"), frames / 200, 1 / 200, "device"


def outages_are_those_of_the_device(lab):
    until = time.monotonic() + BUSY_LIMIT_S
    for name, check, *arguments in (
        ("recovery", recovery),
        ("a reset", reset, 200, 309, "device"),
        ("a reset without an end", reset, 200, 9999, "trial"),
        ("a reset that began before", reset, 0, 150, "trial"),
        ("the longest outage", soak),
    ):
        result = patiently(until, check, lab, *arguments)
        if result is None:
            raise Failed(f"{name}: every attempt in {BUSY_LIMIT_S} s was disturbed")
        found, truth, gap, limit = result
        near = abs(found["value"] - truth) <= max(1.01 * gap, 0.05 * truth)
        expect(near, f"{name}: {found}, the device says {truth} s")
        expect(found["limit"] == limit, f"{name}: {found}, expected {limit}")


def main():
    squall = os.environ.get("SQUALL") or str(HERE.parents[2] / "target/debug/squall")
    with Lab(squall, script=LINKS) as lab:
        if lab is not None:
            outages_are_those_of_the_device(lab)
            print("bridge.py: recovery, resets and the longest outage")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
