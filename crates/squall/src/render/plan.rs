//! What a run would send, in words: a plan, before anything is sent.

use serde_json::Value;
use squall_plan::{
    Placement, Plan, PlanPort, PlanStream, PlanWorker, PortLimits, explain::Preview,
};
use squall_port::{PortFacts, Timestamps};
use squall_profile::{Profile, Stream};
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos};

use crate::{
    Planned, PlannedLoad, PlannedPool, PlannedTemplate,
    render::{
        columns::{Side, printable, table},
        conversations, human,
    },
};

/// Rows that fit a screen or two; the rest is in the JSON.
const MAX_STREAMS: usize = 40;

/// What `squall plan` prints: ports, workers, streams, flows, and `frames` decoded, with their
/// octets if `hex`.
pub fn plan_text(profile: &Profile, planned: &Planned, frames: &[Preview], hex: bool) -> String {
    let plan = &planned.plan;
    let mut text = head(profile, planned);
    text += "\n";
    text += &ports(planned);
    text += "\n";
    text += &workers(plan);
    text += "\n";
    let anything_else = planned.load.is_some() || !planned.attacks.is_empty();
    if !plan.streams.is_empty() || !anything_else {
        text += &streams(profile, plan);
    }
    if let Some(load) = &planned.load {
        text += &flows(load);
    }
    text += planned.attacks.trim_start();
    if !plan.notes.is_empty() {
        text += "\n";
        plan.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    }
    if !frames.is_empty() {
        text += &first_frames(plan, frames, hex);
    }
    text
}

fn head(profile: &Profile, planned: &Planned) -> String {
    let stop = &planned.plan.stop;
    let flows = profile.flows.as_ref();
    let ends: Vec<String> = [
        flows.and_then(|flows| flows.limit).map(|n| format!("{} flows", human::count(n))),
        stop.duration.map(|d| d.to_string()),
        stop.packets.map(|n| format!("{} frames", human::count(n))),
        stop.octets.map(|n| format!("{} octets", human::count(n))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let endless = planned.plan.streams.iter().any(|s| s.pattern.total().is_none())
        || planned.load.as_ref().is_some_and(|load| load.conversations.is_none());
    let end = match (ends.is_empty(), endless) {
        (false, _) => format!("ends after {}", ends.join(" or ")),
        (true, true) => "ends when it is stopped".into(),
        (true, false) => "ends when all is sent".into(),
    };
    let clock = if planned.virtual_time { "virtual" } else { "real" };
    format!("{}: seed {}, {clock} time, {end}\n", printable(&profile.origin), planned.plan.seed)
}

fn ports(planned: &Planned) -> String {
    let columns = [
        ("PORT", Side::Left),
        ("ADDRESS", Side::Left),
        ("SPEED", Side::Right),
        ("LONGEST FRAME", Side::Right),
        ("QUEUES", Side::Right),
        ("ARRIVAL TIMES", Side::Left),
    ];
    let row = |((port, facts), limits): ((&PlanPort, &Option<PortFacts>), &PortLimits)| {
        vec![
            port.name.clone(),
            // Of a bare name what was chosen.
            facts.as_ref().map_or(&port.address, |f| &f.address).clone(),
            limits.speed_bps.map_or("-".into(), |s| human::si(s as f64, "b/s")),
            // As sizes in profiles: with FCS.
            (limits.max_frame + FCS_LEN).to_string(),
            format!("{}/{}", limits.tx_queues, limits.rx_queues),
            facts.as_ref().map_or("not opened", |f| timestamps(f.timestamps)).to_owned(),
        ]
    };
    let rows: Vec<_> =
        planned.plan.ports.iter().zip(&planned.ports).zip(&planned.limits).map(row).collect();
    table(&columns, &rows)
}

/// When frames of a port are said to have come.
pub fn timestamps(timestamps: Timestamps) -> &'static str {
    match timestamps {
        Timestamps::None => "none",
        Timestamps::Process => "process",
        Timestamps::Kernel => "kernel",
        Timestamps::Hardware => "hardware",
        Timestamps::Virtual => "virtual",
    }
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
            bps_l1(planned).map_or("-".into(), |bps| human::si(bps, "b/s")),
            stream.mode.to_string(),
            placement(planned.placement),
        ]
    };
    let shown = || profile.streams.iter().zip(&plan.streams).take(MAX_STREAMS);
    let rows: Vec<_> = shown().map(row).collect();
    let mut text = table(&columns, &rows);
    let rest = plan.streams.len().saturating_sub(MAX_STREAMS);
    if rest > 0 {
        text += &format!("... {} more, see --json\n", human::count(rest as u64));
    }
    text += "\n";
    let value = profile.to_value();
    for (i, (stream, planned)) in shown().enumerate() {
        let traits = traits(stream, planned, profile);
        text += &printable(&format!("{}: {}{traits}", stream.name, packet(&value["stream"][i])));
        text += "\n";
        stream.vary.iter().for_each(|vary| text += &(printable(&format!("  {vary}")) + "\n"));
    }
    text
}

fn flows(load: &PlannedLoad) -> String {
    if let Some(played) = &load.conversations {
        return conversations(played).into_iter().map(|line| printable(&line) + "\n").collect();
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
            template.says.clone(),
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
    text + "\n" + &table(&columns, &load.pools.iter().map(row).collect::<Vec<_>>())
}

/// What is not as it is by default.
fn traits(stream: &Stream, planned: &PlanStream, profile: &Profile) -> String {
    let mut text = String::new();
    if let Some(segment) = stream.segment {
        text += &format!(", cut into frames of {segment} octets of payload");
    }
    if stream.latency {
        text += ", signed";
    }
    if let Some(frames) = planned.program.ring_frames() {
        text += &format!(", all {} frames made ahead", human::count(frames as u64));
    }
    let departures = stream.departures.to_string();
    if departures != "constant" {
        text += &format!(", {departures} departures");
    }
    if stream.start_delay != Nanos::ZERO {
        text += &format!(", starts after {}", stream.start_delay);
    }
    if !stream.self_start {
        text += ", waits to be started";
    }
    if let Some(next) = stream.next.and_then(|next| profile.streams.get(next.stream)) {
        text += &format!(", then {:?}", next.name);
    }
    text
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

/// Asked bits a second with preamble, SFD and gap; none: as fast as the port goes.
pub fn bps_l1(stream: &PlanStream) -> Option<f64> {
    Some(stream.asked_pps? * 8.0 * (stream.mean_len + f64::from(L1_OVERHEAD)))
}

fn placement(placement: Placement) -> String {
    match placement {
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

/// Picoseconds as seconds, to the picosecond only where they matter.
fn seconds(picos: u64) -> String {
    let (whole, rest) = (picos / 1_000_000_000_000, picos % 1_000_000_000_000);
    match rest % 1000 {
        0 => format!("{whole}.{:09} s", rest / 1000),
        _ => format!("{whole}.{rest:012} s"),
    }
}

/// As `tcpdump -xx`.
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
