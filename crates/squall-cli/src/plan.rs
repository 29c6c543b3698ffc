//! `squall plan`: shows the traffic of a profile without sending it.

use std::process::ExitCode;

use serde_json::{Value, json};
use squall::{Error, Placement, Planned, PlannedPool, PlannedTemplate, Profile, StreamDivision};
use squall_plan::explain::{Preview, preview};
use squall_units::FCS_LEN;
use squall_wire::to_hex;

use crate::{
    args::{Choice, Options, ProfileFile},
    output,
};

/// Show what a profile would send, without sending; needs no permissions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall plan load.toml
  squall plan load.toml --frames 3 --hex
  squall plan load.toml --mult 50% --cores 2 --json plan.json")]
pub struct Args {
    #[command(flatten)]
    file: ProfileFile,
    /// Decode the first N frames, in order of departure
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    frames: u32,
    /// Also show the octets of those frames
    #[arg(long)]
    hex: bool,
    /// Write the plan as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    #[command(flatten)]
    options: Options<OfPlans>,
}

/// Run options that have an effect on the plan.
#[derive(Debug)]
pub struct OfPlans;

impl Choice for OfPlans {
    fn has(name: &str) -> bool {
        [
            "duration", "packets", "octets", "mult", "cores", "cpus", "part", "seed", "clock",
            "receive",
        ]
        .contains(&name)
    }
}

pub fn plan(args: &Args) -> Result<ExitCode, Error> {
    let session = args.options.session(args.file.load()?)?;
    let planned = session.plan_only()?;
    let frames = preview(&planned.plan, args.frames as usize);
    if args.json.as_deref() != Some("-") {
        output::print(&planned.text(&session.profile, &frames, args.hex));
    }
    if let Some(name) = &args.json {
        output::write_to(name, &format!("{:#}\n", value(&session.profile, &planned, &frames)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn value(profile: &Profile, planned: &Planned, frames: &[Preview]) -> Value {
    let plan = &planned.plan;
    let name = |port: usize| plan.ports[port].name.as_str();
    let queues = |list: &[(usize, u32)]| -> Vec<Value> {
        list.iter().map(|(port, queue)| json!({ "port": name(*port), "queue": queue })).collect()
    };
    let ports: Vec<Value> = plan
        .ports
        .iter()
        .zip(&planned.ports)
        .zip(&planned.limits)
        .map(|((port, facts), limits)| {
            json!({
                "name": port.name, "address": port.address, "opened": facts.is_some(),
                "kind": facts.as_ref().map(|f| f.kind),
                "mac": facts.as_ref().and_then(|f| f.mac).map(|m| m.to_string()),
                "timestamps": facts.as_ref().map(|f| f.timestamps.name()),
                "speed_bps": limits.speed_bps, "max_frame_octets": limits.max_frame + FCS_LEN,
                "tx_queues": limits.tx_queues, "rx_queues": limits.rx_queues,
            })
        })
        .collect();
    let workers: Vec<Value> = plan
        .workers
        .iter()
        .map(|w| json!({ "cpu": w.cpu, "tx": queues(&w.tx), "rx": queues(&w.rx) }))
        .collect();
    // Each stream as in the profile, together with its plan.
    let written = profile.to_value();
    let streams: Vec<Value> = plan
        .streams
        .iter()
        .enumerate()
        .map(|(i, stream)| {
            json!({
                "name": stream.name, "port": name(stream.port), "profile": written["stream"][i],
                "asked_pps": stream.asked_pps, "bps_l1": stream.bps_l1(), "mean_octets": stream.mean_len,
                "frames": stream.pattern.total(),
                "worker": match stream.placement {
                    _ if stream.division == StreamDivision::OtherPart => json!("other part"),
                    _ if stream.division == StreamDivision::Elsewhere => json!("elsewhere"),
                    Placement::Worker(w) => json!(w),
                    Placement::Shared => json!("shared"),
                },
            })
        })
        .collect();
    // Attacks sent as frames appear as replays that are not in the profile.
    let of_profile = plan.replays.iter().enumerate().filter(|(_, replay)| !replay.fixed);
    let replays: Vec<Value> = of_profile
        .enumerate()
        .map(|(i, (number, replay))| {
            json!({
                "name": replay.name, "ports": replay.ports.iter().map(|&port| name(port)).collect::<Vec<_>>(),
                "profile": written["replay"][i], "start_ns": replay.start.as_nanos().0,
                "end_ns": replay.end.map(|end| end.as_nanos().0),
                "times": replay.speed.0 as f64 / replay.speed.1 as f64, "worker": plan.worker_of_replay(number),
            })
        })
        .collect();
    let frames: Vec<Value> = frames
        .iter()
        .map(|f| {
            let hex = to_hex(&f.octets);
            let stream = &plan.streams[f.stream].name;
            json!({ "due_ps": f.due.0, "stream": stream, "index": f.index, "summary": f.summary, "hex": hex })
        })
        .collect();
    let load = planned.load.as_ref().map(|load| {
        let template = |t: &PlannedTemplate| {
            json!({
                "name": t.name, "says": t.content, "transport": t.transport, "clients": t.clients, "servers": t.servers,
                "listen": t.port, "arrival": t.arrival, "asked_cps": t.asked_cps, "combinations": t.tuples,
            })
        };
        let pool = |p: &PlannedPool| {
            json!({ "name": p.name, "addresses": p.addresses, "first": p.first, "ports": p.ports, "order": p.order })
        };
        json!({
            "templates": load.templates.iter().map(template).collect::<Vec<_>>(),
            "pools": load.pools.iter().map(pool).collect::<Vec<_>>(),
            "conversations": load.conversations,
            "max_flows": load.max_flows, "max_flows_octets": load.max_flows_octets,
        })
    });
    let afters = plan.afters.iter().flat_map(|after| {
        let of: Vec<_> = after.of.iter().map(|&part| plan.name_of(part)).collect();
        after.then.iter().map(move |&part| json!({ "begins": plan.name_of(part), "after": of }))
    });
    json!({
        "schema": "squall-plan/1", "profile": profile.origin, "seed": plan.seed, "part": plan.part.to_string(), "virtual_time": planned.virtual_time,
        "stop": {
            "duration_ns": plan.stop.duration.map(|d| d.0), "packets": plan.stop.packets, "octets": plan.stop.octets,
        },
        "ports": ports, "workers": workers, "streams": streams, "replays": replays, "flows": load,
        "afters": afters.collect::<Vec<_>>(), "notes": plan.notes, "frames": frames,
        "lane_octets": plan.lane_octets(),
    })
}
