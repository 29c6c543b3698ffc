//! What the verdict reads of sources of flows, from the counters of workers.

use std::collections::BTreeMap;

use squall_engine::Stalls;
use squall_program::pace::Pacing;
use squall_units::Nanos;

use crate::report::{
    flows::{FlowsReport, RoleReport},
    source::{Excess, SourceKind, SourceRecord},
};

/// How the schedule of flows was kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    pub pacing: Pacing,
    pub stalls: Stalls,
    pub blocked: Nanos,
}

/// Of flows the records, one for each template that begins some. Of templates from number `attacks`
/// on, which are attacks, nobody expects that all of them succeed.
pub(crate) fn flows(load: &FlowsReport, kept: &Kept, attacks: usize) -> Vec<SourceRecord> {
    let Kept { pacing, stalls, blocked } = *kept;
    let excess = excess(pacing);
    let record = |number: usize, name: &str, client: &RoleReport| {
        let not_sent: BTreeMap<String, u64> = client
            .not_begun
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(reason, n)| (reason.clone(), *n))
            .collect();
        let missing: u64 = not_sent.values().sum();
        let asked = client.asked.unwrap_or(client.attempted + missing);
        SourceRecord {
            name: name.to_owned(),
            kind: if number >= attacks { SourceKind::Attacks } else { SourceKind::Flows },
            ports: load.links.iter().map(|link| link.port.clone()).collect(),
            unit: "flows".into(),
            asked,
            sent: client.attempted,
            not_sent,
            not_sent_ratio: if asked > 0 { missing as f64 / asked as f64 } else { 0.0 },
            asked_rate: client.asked_cps,
            rate: client.cps,
            completed: Some(client.completed),
            failed: client
                .failed
                .iter()
                .filter(|(_, n)| **n > 0)
                .map(|(reason, n)| (reason.clone(), *n))
                .collect(),
            excess,
            lag_s: pacing.lag.as_secs_f64(),
            moved_s: pacing.moved.as_secs_f64(),
            starved_s: stalls.total.as_secs_f64(),
            longest_stall_s: stalls.longest.as_secs_f64(),
            blocked_s: blocked.as_secs_f64(),
            ..SourceRecord::default()
        }
    };
    let mut records: Vec<_> = load
        .templates
        .iter()
        .enumerate()
        .filter_map(|(number, t)| Some(record(number, &t.name, t.roles.client.as_ref()?)))
        .collect();
    if let Some(conversations) = &load.conversations
        && let Some(first) = conversations.kinds.first()
        && let Some(record) = records.iter_mut().find(|record| record.name == first.name)
    {
        record.one_sided = conversations.one_sided;
    }
    records
}

pub(crate) fn excess(pacing: Pacing) -> Option<Excess> {
    let window_s = pacing.window.as_secs_f64();
    (window_s > 0.0).then(|| Excess {
        window_s,
        at_s: pacing.worst.at.as_secs_f64(),
        over_s: pacing.worst.over.as_secs_f64(),
        packets: pacing.worst.packets,
        surplus_packets: pacing.worst.surplus(),
        beyond_s: pacing.worst.beyond.as_secs_f64(),
        allowed_s: pacing.worst.allowed.as_secs_f64(),
        largest_burst_packets: pacing.burst.surplus(),
    })
}
