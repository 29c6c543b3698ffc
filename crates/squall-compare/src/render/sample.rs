//! A sample comparison for tests of the renderers, for which no tool runs.

use crate::{
    Comparison, SCHEMA,
    compared::{Measured, ToolInfo},
    model::{
        Claim, DataInfo, LengthBin, LengthPercentiles, Lossless, Method, Round, SearchRound, Sets,
        Step, Trial, WriteInfo,
    },
};

pub fn comparison() -> Comparison {
    let tools = ["squall", "tcpdump -B 65536", "<b>evil</b> </script>"];
    let rates = [
        ("100 kpps", Some(100e3)),
        ("400 kpps", Some(400e3)),
        ("2 Mpps", Some(2e6)),
        ("max", None),
    ];
    let mut steps = Vec::new();
    for data in ["60", "http"] {
        for (i, tool) in tools.iter().enumerate() {
            steps.extend(rates.iter().map(|(asked, pps)| step(tool, i, data, asked, *pps)));
        }
    }
    let info = |name: &str| ToolInfo {
        name: name.into(),
        command: format!("{name} -i {{interface}} -w {{file}}"),
        version: Some("version 1".into()),
        ..ToolInfo::default()
    };
    let mut infos: Vec<ToolInfo> = tools.iter().map(|name| info(name)).collect();
    infos.push(ToolInfo { why_not: Some("not installed: absent".into()), ..info("absent") });
    Comparison {
        schema: SCHEMA.into(),
        command: "squall compare captures --rounds 3".into(),
        squall_version: "0.1.0".into(),
        started: "2026-11-21T12:00:00Z".into(),
        duration_s: 120.0,
        method: Method {
            rounds: 3,
            step_s: 2.0,
            lossless_below: 0.001,
            sender_cpu: Some(1),
            tool_cpu: Some(0),
            mtu: 1500,
        },
        tools: infos,
        own: Sets {
            data: ["60", "http"].map(data).into(),
            write: vec![WriteInfo { name: "tmpfs".into(), folder: Some("/dev/shm".into()) }],
            lossless: vec![
                lossless("squall", 950e3, true),
                lossless("tcpdump -B 65536", 620e3, false),
            ],
        },
        steps,
        notes: vec!["60 is sent through xdp_live:veth-a".into()],
        ..Comparison::default()
    }
}

fn data(name: &str) -> DataInfo {
    let lengths = vec![(60, 0.5), (1514, 0.5)];
    DataInfo {
        name: name.into(),
        origin: "synthetic".into(),
        mean_octets: 787.0,
        lengths,
        percentiles: LengthPercentiles {
            min: 60,
            p25: 60,
            p50: 60,
            p75: 1514,
            p90: 1514,
            max: 1514,
        },
        histogram: [(60, 60), (61, 1514)]
            .map(|(from, to)| LengthBin { from, to, share: 0.5 })
            .into(),
        packets: None,
    }
}

/// The tools lose packets above 1 Mpps, 500 kpps and 333 kpps. The last tool reports no counts.
fn step(tool: &str, i: usize, data: &str, asked: &str, pps: Option<f64>) -> Step {
    let actual = pps.unwrap_or(f64::INFINITY).min(900e3);
    let limit = 1.0e6 / (i + 1) as f64;
    let arrived = (2.0 * actual) as u64;
    let captured =
        (2.0 * actual.min(limit)) as u64 - if tool == "squall" && pps.is_none() { 9000 } else { 0 };
    let dropped = if i == 2 { 0 } else { arrived - captured };
    let mut round = Round {
        sent: arrived,
        arrived,
        arrived_octets: 60 * arrived,
        sending_s: 2.0,
        claim: Claim { captured: Some(captured), dropped: Some(dropped), received: None },
        in_file: Some(captured),
        user_s: 0.02,
        system_s: 0.1 * (i + 1) as f64,
        peak_memory_octets: 64 << 20,
        ..Round::default()
    };
    round.judge();
    let mut step = Step {
        tool: tool.into(),
        data: data.into(),
        write: "tmpfs".into(),
        asked: asked.into(),
        asked_pps: pps,
        asked_bps: pps.map(|pps| pps * 512.0),
        rounds: vec![round; 3],
        ..Step::default()
    };
    if tool == "squall" {
        step.rounds[1].sending_s = 3.0;
    }
    step.sum_up();
    step
}

fn lossless(tool: &str, pps: f64, sender_bound: bool) -> Lossless {
    let trial =
        Trial { asked_pps: None, actual_pps: pps, plr: Some(0.0), cpu_s_per_mpkt: Some(0.2) };
    Lossless {
        tool: tool.into(),
        data: "60".into(),
        write: "tmpfs".into(),
        pps,
        bps: pps * 512.0,
        pps_range: (0.95 * pps, 1.05 * pps),
        sender_bound,
        cpu_s_per_mpkt: Some(0.2),
        rounds: vec![SearchRound { pps, sender_bound, trials: vec![trial] }; 3],
    }
}
