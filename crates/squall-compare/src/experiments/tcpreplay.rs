//! The flow experiment of Tcpreplay 4 (AppNeta, 2014): a capture is sent in a loop with new
//! addresses each time, so a flow collector sees new flows at a high rate.
//!
//! Instead of the paper's capture smallFlows.pcap, Squall generates one of the same shape: 14,261
//! packets of 1,209 unidirectional flows in 5 minutes, 650 octets on average.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use squall::Error;
use squall_pcap::CaptureReader;
use squall_port_linux::interface_counters;
use squall_report::render::human;
use squall_units::{FCS_LEN, Nanos};

use super::{
    Known, Run,
    collector::{self, Collector, Flow, flow_of},
    model::{Axis, Figure, Source, Table, Unit, Value},
    receivers::{At, Receiver},
};
use crate::{
    compared::{Repeated, two_cpus},
    generators::{
        self, Generator, GeneratorRound,
        run::Place,
        wire::{self, Frame},
    },
    process::Program,
    render::in_order,
    watch::Second,
};

pub const EXPERIMENT: Known = Known {
    name: "tcpreplay",
    title: "Flows per second of replayed captures",
    paper: "Tcpreplay 4.0: flow tests with --unique-ip, AppNeta, 2014",
    about: "Flows per second against packet rate, expiry, the summary, and every flow as a NetFlow \
            probe and collector count it",
    takes_s: [70, 420],
    run,
};

/// Idle timeouts of flows, seconds of the capture's time. Packets of a flow are 22 to 31 s apart in
/// the capture, so the shortest one splits all flows and the longest one none.
const EXPIRIES: [u64; 3] = [10, 25, 60];
/// Packet rate at the probe.
const PROBE_PPS: f64 = 10_000.0;

/// Published result: packets per second, flows per second, and b/s.
const RECORD: (f64, f64, f64) = (1.85e6, 156_712.0, 9.56e9);

fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let settings = run.settings;
    let tools = Generator::replayers(settings.tools.as_deref(), &settings.squall)?;
    run.result.tools = tools.iter().map(Generator::info).collect();
    let frame = capture(&run.work.0)?;
    let sample = Sample::read(&frame.capture).map_err(Error::Environment)?;
    let interfaces = run.enter_lab(1500)?;
    let loopback = wire::ip("link set lo up\n");
    let infos = run.result.tools.clone();
    let usable = run.usable(&tools, &infos)?;
    describe(run, &sample);
    let step = run.step(Nanos(3_000_000_000), Nanos(10_000_000_000));
    let (cpu, receiver_cpu) = two_cpus();
    let attacks = generators::attacks(&tools, &run.work.0);
    let work = run.work.0.clone();
    let place = Place { interfaces, work, cpu, step, limits: None, attacks };
    let mut bench = Bench { place, frame, sample, receiver_cpu, run };
    let replays = bench.rates(&usable);
    let expiries = bench.expiries(&usable);
    let collected = match loopback {
        Ok(()) => bench.collected(&usable),
        Err(why) => {
            bench.run.missing("the NetFlow probe and collector", why);
            Vec::new()
        }
    };
    let sample = bench.sample;
    present(run, &sample, &replays, &expiries, &collected);
    Ok(())
}

fn describe(run: &mut Run<'_>, sample: &Sample) {
    let flows = sample.flows.iter().collect::<HashSet<_>>().len();
    run.fact("Capture", format!("{} packets, {flows} unidirectional flows", sample.flows.len()));
    run.fact("Addresses", "fresh in each loop (--unique-ip)");
    run.missing(
        "smallFlows.pcap",
        "it is not part of Squall; the capture has its numbers of packets and flows and its mean \
         size",
    );
    run.missing(
        "netmap and 10 Gigabit Ethernet",
        "the kernel has no netmap; the link is a veth pair",
    );
    run.missing("a layer 7 collector", "softflowd and nfcapd count flows by addresses and ports");
}

/// Flow and time of each packet of the capture, in order.
#[derive(Clone, Debug, Default)]
struct Sample {
    flows: Vec<Flow>,
    times_ns: Vec<u64>,
}

impl Sample {
    fn read(capture: &Path) -> Result<Self, String> {
        let failed = |error: squall_pcap::CaptureError| error.to_string();
        let mut reader = CaptureReader::open(capture).map_err(failed)?;
        let mut sample = Self::default();
        while let Some(packet) = reader.next().map_err(failed)? {
            if let Some((flow, _)) = flow_of(packet.data) {
                sample.flows.push(flow);
                sample.times_ns.push(packet.time_ns);
            }
        }
        Ok(sample)
    }

    /// Number of flows in the first `packets` packets sent, if each loop has new flows.
    fn flows_of(&self, packets: u64) -> u64 {
        let length = self.flows.len().max(1) as u64;
        let distinct = |flows: &[Flow]| flows.iter().collect::<HashSet<_>>().len() as u64;
        let rest = (packets % length) as usize;
        packets / length * distinct(&self.flows) + distinct(&self.flows[..rest])
    }

    /// Number of flows in one loop, if a flow ends after it was idle for longer than `expiry_ns`.
    fn flows_with_expiry(&self, expiry_ns: u64) -> u64 {
        let mut last: HashMap<Flow, u64> = HashMap::new();
        let packets = self.flows.iter().zip(&self.times_ns);
        let begins = packets.filter(|(flow, time)| {
            let before = last.insert(**flow, **time);
            before.is_none_or(|before| time.saturating_sub(before) > expiry_ns)
        });
        begins.count() as u64
    }
}

/// Writes the capture to `folder`: TCP and UDP, with 42 % of the packets from clients.
fn capture(folder: &Path) -> Result<Frame, Error> {
    let path = folder.join("flows.pcap");
    let from_clients = json!({ "weights": [[70, 3], [304, 1]] });
    let to_clients = json!({ "weights": [[1518, 62], [594, 12], [70, 26]] });
    // Protocol and port of its service; then flows, packets, and packets per second, from clients
    // and from servers. Consecutive packets belong to different flows in turn, so all flows have
    // the same idle times.
    let parts = [
        ("tcp", 443, [(423, 4_193, 14), (423, 5_790, 19)]),
        ("udp", 53, [(182, 1_797, 6), (181, 2_481, 8)]),
    ];
    let mut streams = Vec::new();
    for (i, (protocol, service, ways)) in parts.into_iter().enumerate() {
        let (client, server) = (format!("10.{i}.0.0"), format!("203.0.113.{}", i + 1));
        for (way, (flows, packets, pps)) in ways.into_iter().enumerate() {
            let up = way == 0;
            let (packet, ip, port) = if up {
                let ends = format!("src={client},dst={server}");
                (format!("eth/ipv4({ends})/{protocol}(sport=1024,dport={service})"), "src", "sport")
            } else {
                let ends = format!("src={server},dst={client}");
                (format!("eth/ipv4({ends})/{protocol}(sport={service},dport=1024)"), "dst", "dport")
            };
            let last = flows - 1;
            streams.push(json!({
                "port": "A",
                "packet": packet,
                "size": if up { &from_clients } else { &to_clients },
                "rate": format!("{pps} pps"),
                "mode": { "burst": packets },
                "vary": [
                    { "field": format!("ipv4.{ip}"), "op": "increment", "min": client,
                      "max": format!("10.{i}.{}.{}", last / 256, last % 256) },
                    { "field": format!("{protocol}.{port}"), "op": "increment", "min": 1024,
                      "max": 1024 + last },
                ],
            }));
        }
    }
    let profile = json!({
        "ports": { "A": format!("pcap:{}", path.display()) },
        "stream": streams,
    });
    wire::write(&profile)?;
    Ok(Frame { octets: 646, packet: String::new(), config: path.clone(), capture: path })
}

/// One run of a tool at a rate.
struct Replay {
    tool: String,
    asked_pps: Option<f64>,
    round: GeneratorRound,
    summary: Summary,
}

/// One run of a tool with an idle timeout: the number of flows that it reports, or its error.
struct Expiry {
    tool: String,
    expiry_s: u64,
    reported: Result<Option<u64>, String>,
}

/// One run of a tool whose frames the probe received: datagrams lost on the way to the collector,
/// and the comparison of flows.
struct Collected {
    tool: String,
    judged: Result<(u64, collector::FlowScore), String>,
}

struct Bench<'a, 'r> {
    place: Place,
    frame: Frame,
    sample: Sample,
    receiver_cpu: Option<u32>,
    run: &'a mut Run<'r>,
}

impl Bench<'_, '_> {
    fn rates(&mut self, tools: &[&Generator]) -> Vec<Replay> {
        let rates: &[f64] = match self.run.settings.full {
            true => &[5e3, 10e3, 20e3, 50e3, 100e3, 150e3, 200e3, 300e3],
            false => &[10e3, 50e3, 100e3],
        };
        let mut replays = Vec::new();
        for asked_pps in rates.iter().map(|pps| Some(*pps)).chain([None]) {
            for tool in tools {
                if self.run.stopped() {
                    return replays;
                }
                let round =
                    self.place.once(tool, &self.frame, asked_pps, self.run.stop(), &mut || ());
                let text = fs::read(self.place.work.join("log")).unwrap_or_default();
                let summary = Summary::parse(&String::from_utf8_lossy(&text));
                let at = asked_pps.map_or("max".into(), |pps| human::si(pps, "pps"));
                self.run.progress(&format!("{}  {at}:  {}", tool.name, round.in_a_line()));
                replays.push(Replay { tool: tool.name.clone(), asked_pps, round, summary });
            }
        }
        replays
    }

    fn expiries(&mut self, tools: &[&Generator]) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        for expiry_s in EXPIRIES {
            for tool in tools.iter().filter(|tool| !tool.polls()) {
                if self.run.stopped() {
                    return expiries;
                }
                let reported = self.expiry(tool, expiry_s);
                expiries.push(Expiry { tool: tool.name.clone(), expiry_s, reported });
            }
        }
        expiries
    }

    /// Number of flows that a tool reports for one loop.
    fn expiry(&self, tool: &Generator, expiry_s: u64) -> Result<Option<u64>, String> {
        let [interface, _] = &self.place.interfaces;
        let file = self.frame.capture.display();
        let command = match tool.name.as_str() {
            "tcpreplay" => format!("-i {interface} -K -t --flow-expiry={expiry_s} {file}"),
            _ => format!(
                "replay {file} --port af_packet:{interface} -K -t --flow-expiry {expiry_s}s \
                 --allow-invalid"
            ),
        };
        let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let text = self.whole(&tool.find().ok_or("it is not installed")?, &arguments)?;
        Ok(Summary::parse(&text).flows)
    }

    /// Runs a program to completion, and returns its output.
    fn whole(&self, program: &Path, arguments: &[String]) -> Result<String, String> {
        const AT_MOST: Duration = Duration::from_secs(60);
        let log = self.place.work.join("whole.log");
        let mut started = Program::start(program, arguments, self.place.cpu, log)?;
        let ended = started.ends_within(AT_MOST);
        let output = started.end(AT_MOST);
        if ended {
            Ok(output)
        } else {
            Err(format!("it did not end within {} s", AT_MOST.as_secs()))
        }
    }

    fn collected(&mut self, tools: &[&Generator]) -> Vec<Collected> {
        let lacking = collector::lacking();
        if !lacking.is_empty() {
            let why = format!("not installed: {}", lacking.join(", "));
            self.run.missing("the NetFlow probe and collector", why);
            return Vec::new();
        }
        let squall = &self.run.settings.squall;
        let witness = match Receiver::parse_list(&["tcpdump"], squall) {
            Ok(mut receivers) if receivers[0].info().why_not.is_none() => receivers.remove(0),
            _ => {
                self.run.missing("the NetFlow probe and collector", "tcpdump is not installed");
                return Vec::new();
            }
        };
        self.place.step = self.run.step(Nanos(2_000_000_000), Nanos(15_000_000_000));
        let mut all = Vec::new();
        for tool in tools.iter().filter(|tool| !tool.polls()) {
            if self.run.stopped() {
                break;
            }
            let judged = self.judged(tool, &witness);
            let line = match &judged {
                Ok((_, judged)) => format!("{} of {} flows exact", judged.exact, judged.captured),
                Err(why) => format!("failed: {why}"),
            };
            self.run.progress(&format!("{}  NetFlow:  {line}", tool.name));
            all.push(Collected { tool: tool.name.clone(), judged });
        }
        all
    }

    fn judged(
        &self,
        tool: &Generator,
        witness: &Receiver,
    ) -> Result<(u64, collector::FlowScore), String> {
        let [_, to] = &self.place.interfaces;
        let work = &self.place.work;
        let file: PathBuf = work.join("witness.pcap");
        let _ = fs::remove_file(&file);
        let (report, log) = (work.join("witness.json"), work.join("witness.log"));
        let at =
            At { interface: to, file: &file, report: &report, log: &log, cpu: self.receiver_cpu };
        let arrived = || interface_counters(to).map(|c| c.rx_packets).map_err(|e| e.to_string());
        let tcpdump = witness.start(&at, self.run.stop())?;
        let probe = Collector::start(to, work)?;
        let before = arrived()?;
        let round =
            self.place.once(tool, &self.frame, Some(PROBE_PPS), self.run.stop(), &mut || ());
        if let Some(why) = round.failed {
            return Err(why);
        }
        let sent = arrived()? - before;
        // Further frames, which are not part of a flow.
        let others = format!(
            "send --port af_packet:{} --packet eth/arp -n 2000 --rate 20kpps -q --allow-invalid",
            self.place.interfaces[0]
        );
        let others: Vec<String> = others.split(' ').map(str::to_owned).collect();
        let drained = probe.drain(sent, || {
            let _ = self.whole(&self.run.settings.squall, &others);
        });
        let finished = witness.finish(tcpdump, &file);
        drained?;
        finished.map_err(|why| format!("tcpdump: {why}"))?;
        let (collected, dropped) = probe.finish()?;
        Ok((dropped, collector::judge(&collector::flows_of(&file)?, &collected)))
    }
}

/// Figures of the last lines of tcpreplay's output. `squall replay` prints them in the same format.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Summary {
    packets: Option<u64>,
    octets: Option<u64>,
    seconds: Option<f64>,
    mbps: Option<f64>,
    pps: Option<f64>,
    flows: Option<u64>,
    fps: Option<f64>,
    flow_packets: Option<u64>,
    other_packets: Option<u64>,
}

impl Summary {
    fn parse(text: &str) -> Self {
        let line = |head: &str| {
            text.lines().filter_map(|line| line.trim().strip_prefix(head)).next_back().unwrap_or("")
        };
        let (actual, rated, flows) = (line("Actual:"), line("Rated:"), line("Flows:"));
        let count = |line, unit: &[&str]| before(line, unit).map(|number| number as u64);
        Self {
            packets: count(actual, &["packets"]),
            octets: count(actual, &["bytes"]),
            seconds: before(actual, &["seconds"]),
            mbps: before(rated, &["Mbps"]),
            pps: before(rated, &["pps"]),
            flows: count(flows, &["flows"]),
            fps: before(flows, &["fps"]),
            flow_packets: count(flows, &["flow", "packets"]),
            other_packets: count(flows, &["non-flow"]),
        }
    }
}

/// The number before the words `unit`. tcpreplay prints `unique` between some numbers and their
/// unit.
fn before(line: &str, unit: &[&str]) -> Option<f64> {
    let words: Vec<&str> = line
        .split(|c: char| c.is_ascii_whitespace() || "(),".contains(c))
        .filter(|word| !word.is_empty() && *word != "unique")
        .collect();
    let mut places = words.windows(unit.len() + 1);
    places.find(|place| place[1..] == *unit)?[0].parse().ok()
}

fn present(
    run: &mut Run<'_>,
    sample: &Sample,
    replays: &[Replay],
    expiries: &[Expiry],
    collected: &[Collected],
) {
    for replay in replays {
        let text = match (&replay.round.failed, &replay.round.disagreement) {
            (Some(why), _) => format!("it failed: {why}"),
            (None, Some(wrong)) => format!("it {wrong}"),
            (None, None) => continue,
        };
        run.note(format!("{}: {text}", replay.tool));
    }
    for Collected { tool, judged } in collected {
        match judged {
            Err(why) => run.note(format!("{tool}: the probe or collector failed: {why}")),
            Ok((dropped, _)) if *dropped > 0 => {
                run.note(format!("{tool}: {dropped} datagrams were lost on the way to nfcapd"));
            }
            Ok(_) => {}
        }
    }
    let good: Vec<&Replay> = replays.iter().filter(|r| r.round.failed.is_none()).collect();
    let fastest: Vec<&Replay> = good.iter().copied().filter(|r| r.asked_pps.is_none()).collect();
    let result = &mut run.result;
    result.tables.push(rate_table(sample, &good));
    result.tables.push(summary_table(&fastest));
    result.tables.push(expiry_table(sample, expiries));
    result.tables.push(collector_table(collected));
    result.figures.push(flow_figure(sample, &good));
    result.figures.push(time_figure(&fastest));
}

/// Mean over the seconds of the run.
fn mean(replay: &Replay, value: fn(&Second) -> f64) -> f64 {
    let seconds = &replay.round.seconds;
    seconds.iter().map(value).sum::<f64>() / seconds.len().max(1) as f64
}

/// Flows per second at a packet rate, averaged over complete loops.
fn fps(sample: &Sample, pps: f64) -> f64 {
    let length = sample.flows.len().max(1) as u64;
    pps * sample.flows_of(length) as f64 / length as f64
}

fn rate_table(sample: &Sample, replays: &[&Replay]) -> Table {
    let mut table = Table::new(
        "rates",
        "Flows per second against packet rate",
        "Arrived: counted at the receiving interface, and flows per second as the capture has per \
         packet; Mb/s on layer 2 with FCS. Flows expected: of the packets that arrived. Reported: by the tool.",
        &[
            ("Tool", Unit::Count),
            ("Asked, packets/s", Unit::Number),
            ("Arrived, packets/s", Unit::Number),
            ("Mb/s", Unit::Number),
            ("Flows/s", Unit::Number),
            ("Flows expected", Unit::Number),
            ("Flows reported", Unit::Number),
            ("Flows/s reported", Unit::Number),
            ("CPUs", Unit::Number),
            ("Memory", Unit::Octets),
        ],
    );
    for replay in replays {
        let (round, summary) = (&replay.round, &replay.summary);
        let rate = mean(replay, |second| second.pps);
        let octets = mean(replay, |second| second.octets_per_s) + rate * f64::from(FCS_LEN);
        table.row(vec![
            replay.tool.as_str().into(),
            replay.asked_pps.map_or("max".into(), Into::into),
            rate.into(),
            (octets * 8.0 / 1e6).into(),
            fps(sample, rate).into(),
            (sample.flows_of(round.arrived) as f64).into(),
            summary.flows.map(|flows| flows as f64).into(),
            summary.fps.into(),
            (round.user_cpus + round.system_cpus).into(),
            (round.peak_memory_octets as f64).into(),
        ]);
    }
    let (pps, fps, bps) = RECORD;
    table.paper(vec![
        "tcpreplay 4.0 with netmap, 2014".into(),
        "max".into(),
        pps.into(),
        (bps / 1e6).into(),
        fps.into(),
        Value::None,
        Value::None,
        fps.into(),
        Value::None,
        Value::None,
    ]);
    table
}

fn summary_table(fastest: &[&Replay]) -> Table {
    let mut columns = vec![("Line of the summary", Unit::Count)];
    columns.extend(fastest.iter().map(|replay| (replay.tool.as_str(), Unit::Number)));
    let mut table = Table::new(
        "summary",
        "The summary at full speed",
        "As each tool reports it; the first line is the count of the receiving interface.",
        &columns,
    );
    let mut row = |name: &str, value: &dyn Fn(&Replay) -> Option<f64>| {
        let values = fastest.iter().map(|replay| Value::from(value(replay)));
        table.row(std::iter::once(name.into()).chain(values).collect());
    };
    let whole = |count: Option<u64>| count.map(|count| count as f64);
    row("Arrived, packets", &|replay| Some(replay.round.arrived as f64));
    row("Actual, packets", &|replay| whole(replay.summary.packets));
    row("Actual, octets", &|replay| whole(replay.summary.octets));
    row("Sent in, s", &|replay| replay.summary.seconds);
    row("Rated, Mb/s", &|replay| replay.summary.mbps);
    row("Rated, packets/s", &|replay| replay.summary.pps);
    row("Flows", &|replay| whole(replay.summary.flows));
    row("Flows/s", &|replay| replay.summary.fps);
    row("Flow packets", &|replay| whole(replay.summary.flow_packets));
    row("Other packets", &|replay| whole(replay.summary.other_packets));
    table
}

fn expiry_table(sample: &Sample, expiries: &[Expiry]) -> Table {
    let mut table = Table::new(
        "expiry",
        "Expiry of flows",
        "One loop. A flow ends when it was idle for longer than the expiry, as captured; its next \
         packet begins another one. Expected: counted in the capture.",
        &[
            ("Tool", Unit::Count),
            ("Expiry, s", Unit::Number),
            ("Flows expected", Unit::Number),
            ("Flows reported", Unit::Number),
            ("Remark", Unit::Count),
        ],
    );
    for Expiry { tool, expiry_s, reported } in expiries {
        let expected = sample.flows_with_expiry(expiry_s * 1_000_000_000);
        let (flows, remark) = match reported {
            Ok(flows) if *flows == Some(expected) => (*flows, ""),
            Ok(flows) => (*flows, "differs"),
            Err(why) => (None, why.as_str()),
        };
        table.row(vec![
            tool.as_str().into(),
            (*expiry_s as f64).into(),
            (expected as f64).into(),
            flows.map(|flows| flows as f64).into(),
            remark.into(),
        ]);
    }
    table
}

fn collector_table(collected: &[Collected]) -> Table {
    let mut table = Table::new(
        "collector",
        "Every flow as a NetFlow collector has it",
        "softflowd exports NetFlow 9 to nfcapd. Each flow is compared with a capture of tcpdump at \
         the same interface. Exact: the same packets and octets.",
        &[
            ("Sender", Unit::Count),
            ("Packets", Unit::Number),
            ("Packets collected", Unit::Number),
            ("Flows", Unit::Number),
            ("Flows collected", Unit::Number),
            ("Exact", Unit::Number),
            ("Missing", Unit::Number),
            ("Extra", Unit::Number),
            ("Other counts", Unit::Number),
            ("Datagrams lost", Unit::Number),
        ],
    );
    for Collected { tool, judged } in collected {
        let Ok((dropped, judged)) = judged else { continue };
        let mut cells: Vec<Value> = vec![tool.as_str().into()];
        let counts = [
            judged.packets_captured,
            judged.packets_collected,
            judged.captured,
            judged.collected,
            judged.exact,
            judged.missing,
            judged.extra,
            judged.different,
            *dropped,
        ];
        cells.extend(counts.map(|count| Value::from(count as f64)));
        table.row(cells);
    }
    table
}

fn flow_figure(sample: &Sample, replays: &[&Replay]) -> Figure {
    let (x, y) =
        (Axis::new("packets per second", Unit::Pps), Axis::new("flows per second", Unit::Count));
    let note = "counted at the receiving interface; the dashed point is the published record";
    let mut figure = Figure::lines("flows", "Flows per second against packet rate", note, x, y);
    for tool in in_order(replays.iter().map(|replay| replay.tool.as_str())) {
        let of = replays.iter().filter(|replay| replay.tool == tool);
        let mut points: Vec<_> = of
            .map(|replay| mean(replay, |second| second.pps))
            .map(|pps| (pps, fps(sample, pps)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        figure.series(tool, points);
    }
    figure.reference("tcpreplay 4.0 with netmap, 2014", Source::Paper, [(RECORD.0, RECORD.1)]);
    figure
}

fn time_figure(fastest: &[&Replay]) -> Figure {
    let (x, y) = (Axis::new("time, s", Unit::Number), Axis::new("packets per second", Unit::Pps));
    let note = "each second, counted at the receiving interface";
    let mut figure = Figure::lines("time", "Packets per second at full speed", note, x, y);
    for replay in fastest {
        let mut at = 0.0;
        figure.series(
            &replay.tool,
            replay.round.seconds.iter().map(|second| {
                at += second.length_s;
                (at, second.pps)
            }),
        );
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Packets and flows of smallFlows.pcap, as counted by tcpreplay.
    const PACKETS: usize = 14_261;
    const FLOWS: usize = 1_209;

    const TEXT: &str = "\
File Cache is enabled
Actual: 29949 packets (19135638 bytes) sent in 0.105800 seconds
Rated: 180866143.6 Bps, 1446.92 Mbps, 283071.83 pps
Flows: 2538 flows, 23988.65 fps, 29940 unique flow packets, 9 unique non-flow packets
Statistics for network device: a0
\tSuccessful packets:        29949";

    #[test]
    fn summaries_of_both_tools_are_read() {
        let expected = Summary {
            packets: Some(29_949),
            octets: Some(19_135_638),
            seconds: Some(0.1058),
            mbps: Some(1446.92),
            pps: Some(283_071.83),
            flows: Some(2_538),
            fps: Some(23_988.65),
            flow_packets: Some(29_940),
            other_packets: Some(9),
        };
        assert_eq!(Summary::parse(TEXT), expected);
        assert_eq!(Summary::parse(&TEXT.replace("unique ", "")), expected);
        let with_expiry =
            "Flows: 9983 flows, 846 unique, 9137 expired, 256817.24 fps, 9983 flow packets";
        let summary = Summary::parse(with_expiry);
        assert_eq!((summary.flows, summary.fps), (Some(9_983), Some(256_817.24)));
        assert_eq!(Summary::parse("killed"), Summary::default());
    }

    fn sample(flows: &[u8], times_s: &[u64]) -> Sample {
        let flow = |host: &u8| Flow {
            src: Ipv4Addr::new(10, 0, 0, *host),
            dst: Ipv4Addr::new(10, 0, 1, 1),
            src_port: 1,
            dst_port: 2,
            protocol: 17,
        };
        Sample {
            flows: flows.iter().map(flow).collect(),
            times_ns: times_s.iter().map(|s| s * 1_000_000_000).collect(),
        }
    }

    #[test]
    fn each_loop_has_its_own_flows_and_a_part_has_those_it_reached() {
        let sample = sample(&[1, 1, 2, 3], &[0, 1, 2, 3]);
        let counts = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|packets| sample.flows_of(packets));
        assert_eq!(counts, [0, 1, 1, 2, 3, 4, 4, 5, 6]);
        assert_eq!(fps(&sample, 400.0), 300.0);
        assert_eq!(Sample::default().flows_of(5), 0);
    }

    #[test]
    fn an_idle_flow_ends_and_another_begins() {
        let sample = sample(&[1, 2, 1, 1, 2], &[0, 0, 10, 21, 30]);
        let flows = [9, 10, 29, 30].map(|s| sample.flows_with_expiry(s * 1_000_000_000));
        assert_eq!(flows, [5, 4, 3, 2]);
    }

    #[test]
    fn the_capture_has_the_form_of_the_published_one() {
        let folder = crate::Work::new().unwrap();
        let frame = capture(&folder.0).unwrap();
        let sample = Sample::read(&frame.capture).unwrap();
        assert_eq!(sample.flows.len(), PACKETS);
        assert_eq!(sample.flows_of(PACKETS as u64), FLOWS as u64);
        let octets: u64 =
            collector::flows_of(&frame.capture).unwrap().values().map(|counts| counts.octets).sum();
        let mean = octets as f64 / PACKETS as f64 + 14.0;
        assert!((630.0..670.0).contains(&mean), "{mean}");
        // With gaps of 22 to 31 s, every packet starts a flow, then only those of clients, then
        // none.
        let expired = EXPIRIES.map(|s| sample.flows_with_expiry(s * 1_000_000_000) as usize);
        assert_eq!((expired[0], expired[2]), (PACKETS, FLOWS));
        assert!((FLOWS + 1000..PACKETS - 1000).contains(&expired[1]), "{expired:?}");
    }
}
