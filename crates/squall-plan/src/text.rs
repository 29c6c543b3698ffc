//! Formats a plan as text, to show it to users before a run.

use serde_json::Value;
use squall_profile::{HostAddress, HostGroup, HostIpv6, Profile, Replay, SpeedUnit, Stream};
use squall_program::{GapLaw, Shape};
use squall_report::render::{
    columns::{Side, printable, table},
    conversations, human,
};
use squall_units::{FCS_LEN, Nanos};

use crate::{
    Part, Placement, Plan, PlanHosts, PlanPort, PlanReplay, PlanRouter, PlanStream, PlanWorker,
    PlannedLoad, PlannedPool, PlannedTemplate, StreamDivision, explain::Preview,
};

/// A plan with the facts about its ports.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    pub plan: &'a Plan,
    /// The ports of the plan, in order.
    pub ports: Vec<ShownPort<'a>>,
    pub virtual_time: bool,
    /// The load of the flows.
    pub load: Option<&'a PlannedLoad>,
    /// Description of the attacks; may be empty.
    pub attacks: &'a str,
}

/// Facts about a port, found by opening it or looking it up.
#[derive(Clone, Debug)]
pub struct ShownPort<'a> {
    /// The address to which a bare name was resolved.
    pub address: &'a str,
    pub limits: &'a crate::PortLimits,
    /// The source of receive times; `None`: the port was not opened.
    pub arrival_times: Option<&'static str>,
}

/// Maximum number of rows, which fit on a screen or two; the JSON has all.
const MAX_STREAMS: usize = 40;

/// The output of `squall plan`: ports, workers, streams, flows, and the decoded `frames`, with
/// their octets if `hex`.
pub fn plan_text(profile: &Profile, planned: &Shown<'_>, frames: &[Preview], hex: bool) -> String {
    let plan = planned.plan;
    let mut text = head(profile, planned);
    text += "\n";
    text += &ports(planned);
    text += "\n";
    text += &workers(plan);
    text += "\n";
    let anything_else = planned.load.is_some()
        || !plan.replays.is_empty()
        || !planned.attacks.is_empty()
        || !plan.hosts.is_empty()
        || !plan.routers.is_empty();
    if !plan.streams.is_empty() || !anything_else {
        text += &streams(profile, plan);
    }
    if !profile.replays.is_empty() {
        text += if plan.streams.is_empty() { "" } else { "\n" };
        text += &replays(profile, plan);
        text += if planned.load.is_some() || !planned.attacks.is_empty() { "\n" } else { "" };
    }
    if let Some(load) = planned.load {
        text += &flows(load);
    }
    text += planned.attacks.trim_start();
    if !plan.hosts.is_empty() {
        text += if text.ends_with("\n\n") { "" } else { "\n" };
        text += &hosts(profile, plan);
    }
    if !plan.routers.is_empty() {
        text += if text.ends_with("\n\n") { "" } else { "\n" };
        text += &routers(plan);
    }
    if !plan.afters.is_empty() {
        text += "\n";
        text += &afters(plan);
    }
    if !plan.notes.is_empty() {
        text += "\n";
        plan.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    }
    if !frames.is_empty() {
        text += &first_frames(plan, frames, hex);
    }
    text
}

fn head(profile: &Profile, planned: &Shown<'_>) -> String {
    let stop = &planned.plan.stop;
    let flows = profile.flows.as_ref();
    let ends: Vec<String> = [
        flows.and_then(|flows| flows.limit).map(|n| human::counted(n, "flow")),
        stop.duration.map(|d| d.to_string()),
        stop.packets.map(|n| human::counted(n, "frame")),
        stop.octets.map(|n| human::counted(n, "octet")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let endless = planned.plan.streams.iter().any(PlanStream::is_endless)
        || planned.load.is_some_and(|load| load.conversations.is_none());
    let endless = endless || !profile.replays.iter().all(Replay::ends);
    let end = match (ends.is_empty(), endless) {
        (false, _) => format!("ends after {}", ends.join(" or ")),
        (true, true) => "ends when stopped".into(),
        (true, false) => "ends when everything is sent".into(),
    };
    let clock = if planned.virtual_time { "virtual" } else { "real" };
    let part = match planned.plan.part {
        whole if whole.is_whole() => String::new(),
        part => format!("part {part}, "),
    };
    let (origin, seed) = (printable(&profile.origin), planned.plan.seed);
    format!("{origin}: {part}seed {seed}, {clock} time, {end}\n")
}

fn ports(planned: &Shown<'_>) -> String {
    let columns = [
        ("PORT", Side::Left),
        ("ADDRESS", Side::Left),
        ("SPEED", Side::Right),
        ("LONGEST FRAME", Side::Right),
        ("QUEUES", Side::Right),
        ("ARRIVAL TIMES", Side::Left),
    ];
    let row = |(port, shown): (&PlanPort, &ShownPort<'_>)| {
        let limits = shown.limits;
        vec![
            port.name.clone(),
            shown.address.to_owned(),
            limits.speed_bps.map_or("-".into(), |s| human::si(s as f64, "b/s")),
            // With FCS, like sizes in a profile.
            (limits.max_frame + FCS_LEN).to_string(),
            format!("{}/{}", limits.tx_queues, limits.rx_queues),
            shown.arrival_times.unwrap_or("not opened").to_owned(),
        ]
    };
    let rows: Vec<_> = planned.plan.ports.iter().zip(&planned.ports).map(row).collect();
    table(&columns, &rows)
}

fn workers(plan: &Plan) -> String {
    let queues = |list: &[(usize, u32)]| match list {
        [] => "-".to_owned(),
        list => list
            .iter()
            .map(|(p, q)| format!("{} (queue {q})", plan.ports[*p].name))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let row = |(i, worker): (usize, &PlanWorker)| {
        let streams = (0..plan.streams.len()).filter(|&s| plan.share(s, i).is_some()).count();
        let cpu = worker.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        vec![i.to_string(), cpu, queues(&worker.tx), streams.to_string(), queues(&worker.rx)]
    };
    let rows: Vec<_> = plan.workers.iter().enumerate().map(row).collect();
    let columns = [
        ("WORKER", Side::Right),
        ("CPU", Side::Right),
        ("SENDS ON", Side::Left),
        ("STREAMS", Side::Right),
        ("RECEIVES ON", Side::Left),
    ];
    table(&columns, &rows)
}

fn hosts(profile: &Profile, plan: &Plan) -> String {
    let columns = [
        ("HOSTS", Side::Left),
        ("PORT", Side::Left),
        ("COUNT", Side::Right),
        ("MAC", Side::Left),
        ("ADDRESSES", Side::Left),
        ("SETUP", Side::Right),
        ("START", Side::Right),
    ];
    let row = |(group, planned): (&HostGroup, &PlanHosts)| {
        let ipv4 = match group.ipv4 {
            HostAddress::None => None,
            HostAddress::Dhcp => Some("dhcp".to_owned()),
            HostAddress::LinkLocal => Some("link-local".to_owned()),
            HostAddress::Pppoe => Some("pppoe".to_owned()),
            HostAddress::Static { first, prefix } => Some(format!("{first}/{prefix}")),
        };
        let ipv6 = group.ipv6.map(|ipv6| match ipv6 {
            HostIpv6::Slaac => "slaac".to_owned(),
            HostIpv6::Stateless => "slaac and dhcp6".to_owned(),
            HostIpv6::Dhcp => "dhcp6".to_owned(),
            HostIpv6::Static { first, prefix } => format!("{first}/{prefix}"),
        });
        let addresses: Vec<_> = ipv4.into_iter().chain(ipv6).collect();
        vec![
            group.name.clone(),
            plan.ports[group.port].name.clone(),
            human::count(group.count.into()),
            planned.settings.mac.to_string(),
            addresses.join(", "),
            group.setup.map_or("max".into(), |rate| format!("{}/s", human::count(rate))),
            group.start.to_string(),
        ]
    };
    let rows: Vec<_> = profile.hosts.iter().zip(&plan.hosts).map(row).collect();
    table(&columns, &rows)
}

fn routers(plan: &Plan) -> String {
    let columns = [
        ("ROUTER", Side::Left),
        ("PORT", Side::Left),
        ("DAEMON", Side::Left),
        ("MAC", Side::Left),
        ("ADDRESSES", Side::Left),
        ("PROTOCOLS", Side::Left),
        ("ROUTES", Side::Right),
    ];
    let row = |router: &PlanRouter| {
        let settings = &router.settings;
        let ipv4 = settings.ipv4.map(|(address, length)| format!("{address}/{length}"));
        let ipv6 = settings.ipv6.map(|(address, length)| format!("{address}/{length}"));
        let addresses: Vec<_> = ipv4.into_iter().chain(ipv6).collect();
        let routes: u64 = settings.routes();
        vec![
            router.name.clone(),
            plan.ports[router.port].name.clone(),
            match settings.daemon.native() {
                Some(copies) if copies.count > 1 => format!("native x {}", copies.count),
                _ => settings.daemon.name().to_owned(),
            },
            settings.mac.to_string(),
            addresses.join(", "),
            settings.protocols().join(", "),
            human::count(routes),
        ]
    };
    let rows: Vec<_> = plan.routers.iter().map(row).collect();
    table(&columns, &rows)
}

fn replays(profile: &Profile, plan: &Plan) -> String {
    let columns = [
        ("REPLAY", Side::Left),
        ("PORTS", Side::Left),
        ("FILES", Side::Left),
        ("SPEED", Side::Left),
        ("LOOPS", Side::Right),
        ("START", Side::Right),
        ("END", Side::Right),
        ("WORKER", Side::Right),
    ];
    let row = |(located, (number, planned)): (&Replay, (usize, &PlanReplay))| {
        let ports: Vec<_> = planned.ports.iter().map(|&p| plan.ports[p].name.as_str()).collect();
        let files: Vec<_> = located.files.iter().map(|file| file.text.as_str()).collect();
        let speed = match &located.speed {
            None => "as captured".to_owned(),
            Some((SpeedUnit::Captured, located)) => format!("{} x captured", located.text),
            Some((SpeedUnit::Mbps, located)) => format!("{} Mb/s", located.text),
            Some((_, located)) => located.text.clone(),
        };
        let speed = match planned.speed {
            (num, den) if num == den => speed,
            (num, den) => format!("{speed}, times {}", num as f64 / den as f64),
        };
        vec![
            located.name.clone(),
            ports.join(", "),
            printable(&files.join(", ")),
            speed,
            if located.loops == 0 { "endless".into() } else { human::count(located.loops) },
            planned.start.as_nanos().to_string(),
            planned.end.map_or("-".into(), |end| end.as_nanos().to_string()),
            plan.worker_of_replay(number).map_or("-".into(), |worker| worker.to_string()),
        ]
    };
    // Lists only replays of the profile: attacks that are sent as frames have their own section.
    let of_profile = plan.replays.iter().enumerate().filter(|(_, replay)| !replay.fixed);
    let rows: Vec<_> = profile.replays.iter().zip(of_profile).map(row).collect();
    table(&columns, &rows)
}

fn streams(profile: &Profile, plan: &Plan) -> String {
    let columns = [
        ("STREAM", Side::Left),
        ("PORT", Side::Left),
        ("SIZE", Side::Left),
        ("ASKED", Side::Right),
        ("PPS", Side::Right),
        ("L1", Side::Right),
        ("MODE", Side::Left),
        ("WORKER", Side::Right),
    ];
    let row = |(stream, planned): (&Stream, &PlanStream)| {
        vec![
            stream.name.clone(),
            plan.ports[planned.port].name.clone(),
            stream.size.to_string(),
            stream.rate.to_string(),
            planned.asked_pps.map_or("max".into(), |pps| human::si(pps, "pps")),
            planned.bps_l1().map_or("-".into(), |bps| human::si(bps, "b/s")),
            stream.mode.to_string(),
            placement(planned),
        ]
    };
    let shown = || profile.streams.iter().zip(&plan.streams).take(MAX_STREAMS);
    let rows: Vec<_> = shown().map(row).collect();
    let mut text = table(&columns, &rows);
    let rest = plan.streams.len().saturating_sub(MAX_STREAMS);
    if rest > 0 {
        text += &format!("... {} more, see --json\n", human::count(rest as u64));
    }
    let octets = plan.lane_octets();
    if octets > 0 {
        let phases = plan.streams.iter().map(|stream| stream.phases.len()).max().unwrap_or(0);
        text += &format!(
            "\nconvergence of routes: {} of memory, {} of routers\n",
            human::si(octets as f64, "B"),
            match phases as u64 {
                0 => "for no steps".to_owned(),
                steps => format!("for {}", human::counted(steps, "step")),
            }
        );
    }
    text += "\n";
    for (stream, planned) in shown() {
        let (traits, value) = (traits(stream, planned, profile), profile.stream_value(stream));
        text += &printable(&format!("{}: {}{traits}", stream.name, packet(&value)));
        text += "\n";
        stream.vary.iter().for_each(|vary| text += &(printable(&format!("  {vary}")) + "\n"));
    }
    text
}

fn flows(load: &PlannedLoad) -> String {
    let room = format!(
        "room for {} flows per worker and port, which would take {} (max_flows)\n",
        human::count(load.max_flows.into()),
        human::si(load.max_flows_octets as f64, "B")
    );
    if let Some(played) = &load.conversations {
        let lines = conversations(played).into_iter().map(|line| printable(&line) + "\n");
        return lines.chain([room]).collect();
    }
    let columns = [
        ("TEMPLATE", Side::Left),
        ("SAYS", Side::Left),
        ("OVER", Side::Left),
        ("CLIENTS", Side::Left),
        ("SERVERS", Side::Left),
        ("BEGINS", Side::Left),
        ("CPS", Side::Right),
        ("COMBINATIONS", Side::Right),
    ];
    let row = |template: &PlannedTemplate| {
        vec![
            template.name.clone(),
            template.content.clone(),
            template.transport.to_owned(),
            template.clients.clone(),
            format!("{}:{}", template.servers, template.port),
            template.arrival.clone(),
            template.asked_cps.map_or("-".into(), |cps| human::si(cps, "")),
            human::count(template.tuples),
        ]
    };
    let rows: Vec<_> = load.templates.iter().take(MAX_STREAMS).map(row).collect();
    let mut text = table(&columns, &rows);
    let rest = load.templates.len().saturating_sub(MAX_STREAMS);
    if rest > 0 {
        text += &format!("... {} more, see --json\n", human::count(rest as u64));
    }
    let columns = [
        ("POOL", Side::Left),
        ("ADDRESSES", Side::Right),
        ("FROM", Side::Left),
        ("PORTS", Side::Right),
        ("ORDER", Side::Left),
    ];
    let row = |pool: &PlannedPool| {
        let (addresses, ports) = (human::count(pool.addresses), human::count(pool.ports));
        vec![pool.name.clone(), addresses, pool.first.clone(), ports, pool.order.to_owned()]
    };
    text + "\n" + &table(&columns, &load.pools.iter().map(row).collect::<Vec<_>>()) + &room
}

/// Describes the dependencies between parts.
fn afters(plan: &Plan) -> String {
    let columns =
        [("BEGINS", Side::Left), ("AFTER THE END OF", Side::Left), ("DELAY", Side::Right)];
    let delay = |part: Part| match part {
        Part::Stream(i) => plan.streams[i].start.as_nanos(),
        Part::Replay(i) => plan.replays[i].start.as_nanos(),
        Part::Template(i) => {
            plan.flows.as_ref().map_or(Nanos::ZERO, |flows| flows.load.templates[i].start)
        }
    };
    let rows = plan.afters.iter().flat_map(|after| {
        let of: Vec<_> = after.of.iter().map(|&part| printable(plan.name_of(part))).collect();
        let row = move |&part: &Part| {
            vec![printable(plan.name_of(part)), of.join(", "), delay(part).to_string()]
        };
        after.then.iter().map(row).collect::<Vec<_>>()
    });
    table(&columns, &rows.take(MAX_STREAMS).collect::<Vec<_>>())
}

/// Lists the settings of a stream that differ from the defaults.
fn traits(stream: &Stream, planned: &PlanStream, profile: &Profile) -> String {
    let mut text = String::new();
    if let Some(segment) = stream.segment {
        text += &format!(", cut into frames of {segment} octets of payload");
    }
    for (key, hosts) in [("from", &stream.src), ("to", &stream.dst)] {
        if let Some(name) = hosts.as_ref().and_then(|hosts| hosts.host_group()) {
            text += &format!(", {key} hosts {name:?}");
        }
    }
    if let Some(router) = stream.dst.as_ref().and_then(|dst| dst.learnt()) {
        text += &format!(", to routes that {router:?} has learnt");
    }
    if let Some(routes) = &planned.routes {
        text += &format!(", to {}", human::counted(routes.len(), "route"));
    }
    if stream.latency {
        text += ", signed";
    }
    if stream.trex_group.is_some() {
        text += ", marked";
    }
    if let Some(frames) = planned.program.ring_frames() {
        text += &format!(", all {} frames made ahead", human::count(frames as u64));
    }
    let departures = stream.departures.to_string();
    if departures != "constant" {
        text += &format!(", {departures} departures");
    }
    if let GapLaw::Shaped { shape, .. } = &planned.law {
        text += &in_stages(shape, planned.asked_pps.unwrap_or_default(), "pps");
    }
    if stream.start_delay != Nanos::ZERO {
        text += &format!(", starts after {}", stream.start_delay);
    }
    if let Some(lasts) = stream.duration {
        text += &format!(", for {lasts}");
    }
    if !stream.self_start {
        text += ", waits for another stream";
    }
    if let Some(next) = stream.next.and_then(|next| profile.streams.get(next.stream)) {
        text += &format!(", then {:?}", next.name);
    }
    text
}

/// Describes the pieces of a shape whose full level is `full`.
pub(crate) fn in_stages(shape: &Shape, full: f64, unit: &str) -> String {
    let pieces = shape.pieces().map(|(lasts, from, to)| {
        let (from, to) = (human::si(from * full, unit), human::si(to * full, unit));
        if from == to { format!("{to} for {lasts}") } else { format!("{from} to {to} in {lasts}") }
    });
    format!(", in stages: {}", pieces.collect::<Vec<_>>().join(", "))
}

fn packet(stream: &Value) -> String {
    let text = |key: &str| stream[key].as_str();
    match (text("packet"), text("hex"), text("pcap")) {
        (Some(packet), _, _) => packet.to_owned(),
        (_, Some(hex), _) if hex.len() > 64 => {
            format!("hex {}... ({} octets)", &hex[..64], hex.len() / 2)
        }
        (_, Some(hex), _) => format!("hex {hex}"),
        (_, _, pcap) => format!("pcap {}", pcap.unwrap_or_default()),
    }
}

fn placement(stream: &PlanStream) -> String {
    match stream.placement {
        _ if stream.division == StreamDivision::OtherPart => "other part".into(),
        _ if stream.division == StreamDivision::Elsewhere => "elsewhere".into(),
        Placement::Worker(worker) => worker.to_string(),
        Placement::Shared => "shared".into(),
    }
}

fn first_frames(plan: &Plan, frames: &[Preview], hex: bool) -> String {
    let columns = [
        ("DUE", Side::Right),
        ("STREAM", Side::Left),
        ("FRAME", Side::Right),
        ("OCTETS", Side::Right),
        ("", Side::Left),
    ];
    let row = |frame: &Preview| {
        vec![
            seconds(frame.due.0),
            plan.streams[frame.stream].name.clone(),
            frame.index.to_string(),
            (frame.octets.len() + FCS_LEN as usize).to_string(),
            frame.summary.clone(),
        ]
    };
    let rows: Vec<_> = frames.iter().map(row).collect();
    let lines = table(&columns, &rows);
    let mut text = "\n".to_owned();
    for (i, line) in lines.lines().enumerate() {
        text += &format!("{line}\n");
        if let Some(frame) = i.checked_sub(1).filter(|_| hex).and_then(|i| frames.get(i)) {
            text += &dump(&frame.octets);
        }
    }
    text
}

/// Formats picoseconds as seconds, with as many digits as needed.
fn seconds(picos: u64) -> String {
    let (whole, rest) = (picos / 1_000_000_000_000, picos % 1_000_000_000_000);
    match rest % 1000 {
        0 => format!("{whole}.{:09} s", rest / 1000),
        _ => format!("{whole}.{rest:012} s"),
    }
}

/// Formats octets like `tcpdump -xx`.
fn dump(octets: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in octets.chunks(16).enumerate() {
        text += &format!("    {:04x} ", i * 16);
        line.chunks(2).for_each(|pair| {
            text.push(' ');
            pair.iter().for_each(|octet| text += &format!("{octet:02x}"));
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_show_picoseconds_only_where_there_are_any() {
        assert_eq!(seconds(0), "0.000000000 s");
        assert_eq!(seconds(1_000_014_880_000), "1.000014880 s");
        assert_eq!(seconds(333), "0.000000000333 s");
    }

    #[test]
    fn a_dump_reads_as_that_of_tcpdump() {
        assert_eq!(dump(&[1, 2, 3]), "    0000  0102 03\n");
    }
}
