//! Attacks as conversations on Squall's own TCP and UDP stack.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use squall_apps::{Import, ImportOptions, Transport, import};
use squall_attacks::{
    End, Label, Shape, Transport as AttackTransport, labels::Kind, suite::Attack,
};
use squall_flows::{FailedConversation, Served};
use squall_pcap::CaptureReader;
use squall_plan::flows::PlayedScript;
use squall_profile::{Attack as AttackSpec, Begin, Conversations, Flows};
use squall_report::report::attack::{PassageReport, RulePassage};
use squall_units::Nanos;

use crate::{
    Capture, Error, Line, Merged,
    passage::{Passage, PassageChecker},
};

/// The conversations, and the label for each.
#[derive(Clone, Debug)]
pub struct Live {
    pub(crate) import: Arc<Import>,
    /// Index of the label for each conversation, by its number in `import`.
    labels: Arc<Vec<Option<usize>>>,
}

/// Whether TCP or UDP sockets can play the attack as well as prepared frames can. They can if the
/// rule tests no headers, and the client starts.
pub(crate) fn is_conversation(attack: &Attack) -> bool {
    is_unicast(attack.ends.client)
        && is_unicast(attack.ends.server)
        && attack.exchanges.iter().all(|exchange| {
            let usual = exchange.turns.iter().all(|turn| {
                let Shape { whole: _, pause_ns: _, .. } = turn.shape;
                Shape { whole: false, pause_ns: 0, ..turn.shape.clone() } == Shape::default()
                    && !turn.octets.is_empty()
            });
            let transport_fits = match exchange.transport {
                AttackTransport::Tcp => true,
                // Longer datagrams would be fragmented, and the stack does not reassemble
                // fragments.
                AttackTransport::Udp => {
                    exchange.turns.first().is_some_and(|turn| turn.from == End::Client)
                        && exchange.turns.iter().all(|turn| turn.octets.len() <= MAX_DATAGRAM)
                }
                AttackTransport::Segments | AttackTransport::Icmp | AttackTransport::Ip(_) => false,
            };
            transport_fits && usual && !exchange.same_address && !exchange.turns.is_empty()
        })
}

/// Maximum UDP payload in an IPv6 packet of 1500 octets: 1500 - 40 - 8.
const MAX_DATAGRAM: usize = 1452;

/// Whether the address is that of a single host.
fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified() && !v4.is_loopback()
        }
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified() && !v6.is_loopback(),
    }
}

/// Client, server, and whether the conversation uses UDP.
type Ends = ((IpAddr, u16), (IpAddr, u16), bool);

impl Live {
    pub fn of(lines: Vec<Line>, labels: &[Label]) -> Result<Self, Error> {
        let capture = Capture::new(Merged::new(lines.iter().map(|line| line()).collect()));
        let usage = |error: &dyn std::fmt::Display| {
            Error::Usage(format!("cannot play attacks live: {error}"))
        };
        let mut reader = CaptureReader::from_read(capture).map_err(|error| usage(&error))?;
        let import = import(&mut reader, "attack", &ImportOptions::default())
            .map_err(|error| usage(&error))?;
        let mut by_ends: HashMap<Ends, Vec<usize>> = HashMap::new();
        for (i, label) in labels.iter().enumerate().rev() {
            let (client, server) =
                ((label.source, label.source_port), (label.destination, label.destination_port));
            by_ends.entry((client, server, label.protocol == 17)).or_default().push(i);
        }
        let of = import.conversations.iter().map(|one| {
            by_ends
                .get_mut(&(one.client_end, one.server_end, one.client.transport == Transport::Udp))
                .and_then(Vec::pop)
        });
        let of = of.collect();
        Ok(Live { import: Arc::new(import), labels: Arc::new(of) })
    }

    /// Indices of the labels of all conversations.
    pub fn labeled(&self) -> HashSet<usize> {
        self.labels.iter().flatten().copied().collect()
    }

    /// The flows section that would play the conversations if they were those of a capture.
    pub(crate) fn flows(spec: &AttackSpec) -> Flows {
        Flows {
            replay: Some(Conversations {
                capture: "attacks".into(),
                begin: Begin::Captured(1.0),
                loops: 1,
                ..Conversations::default()
            }),
            clients: Some(spec.port),
            servers: spec.port2,
            client_network: spec.client_network.clone(),
            server_network: spec.server_network.clone(),
            ..Flows::default()
        }
    }

    /// The effect of the device on each conversation that started by `end`. Numbers in `script` are
    /// those in the import, from 1.
    pub(crate) fn passage(
        &self,
        labels: &[Label],
        script: PlayedScript<'_>,
        (failed, served): (&[FailedConversation], &Served),
        end: Nanos,
    ) -> Passages {
        let mut passages = Passages::default();
        let mut first: HashMap<u32, FailedConversation> = HashMap::new();
        for one in failed {
            // The client's failure takes precedence; the server's counts only if the client reports
            // none.
            first
                .entry(one.number)
                .and_modify(|known| {
                    if one.client {
                        *known = *one
                    }
                })
                .or_insert(*one);
        }
        for (played, number) in (script.before as u32..).zip(&script.plan.numbers) {
            let Some(label) =
                self.labels.get((*number as usize).wrapping_sub(1)).copied().flatten()
            else {
                continue;
            };
            let label = &labels[label];
            if label.begin > end {
                continue;
            }
            // The sender of datagrams without answers cannot know whether they arrived, but the
            // server does.
            let is_lost = || label.protocol == UDP && !served.has(played);
            let blocked = match first.get(&played) {
                Some(failed) => Some(failed.failure.name()),
                None => is_lost().then_some(NOT_RECEIVED),
            };
            passages.add(label, blocked);
        }
        passages
    }
}

const UDP: u8 = 17;

/// Reasons why an attack counts as blocked if octets are missing: none arrived, or not all did.
const NOT_RECEIVED: &str = "not_received";
const PARTLY_RECEIVED: &str = "partly_received";

/// The effects of a device on all attacks.
#[derive(Default)]
pub(crate) struct Passages {
    report: PassageReport,
    rules: HashMap<(u32, u32), RulePassage>,
}

impl Passages {
    /// Counts an attack. If it did not pass, `blocked` has the reason.
    fn add(&mut self, label: &Label, blocked: Option<&str>) {
        let report = &mut self.report;
        let rule = self.rules.entry((label.gid, label.sid)).or_insert_with(|| RulePassage {
            gid: label.gid,
            sid: label.sid,
            msg: if label.sid == 0 { label.name.clone() } else { label.msg.clone() },
            ..RulePassage::default()
        });
        let passed = blocked.is_none();
        report.conversations += 1;
        if label.kind == Kind::NearMiss {
            report.near_misses += 1;
            rule.near_misses += 1;
            report.near_misses_passed += u64::from(passed);
            rule.near_misses_passed += u64::from(passed);
        } else {
            rule.attacks += 1;
            rule.passed += u64::from(passed);
            rule.blocked += u64::from(!passed);
        }
        report.passed += u64::from(passed);
        if let Some(why) = blocked {
            *report.blocked.entry(why.to_owned()).or_default() += 1;
        }
    }

    /// Counts the attacks that were sent as frames by `end`.
    pub fn add_frames(&mut self, received: &PassageChecker, labels: &[Label], end: Nanos) {
        for (label, passage) in received.attacks(labels, end) {
            self.report.as_frames += 1;
            self.report.altered += u64::from(passage == Passage::Altered);
            let blocked = match passage {
                Passage::Passed | Passage::Altered => None,
                Passage::Partly => Some(PARTLY_RECEIVED),
                Passage::Nothing => Some(NOT_RECEIVED),
            };
            self.add(label, blocked);
        }
    }

    /// The counts. `None` if there were no attacks.
    pub fn report(self) -> Option<PassageReport> {
        let mut report = self.report;
        report.rules = self.rules.into_values().collect();
        report.rules.sort_unstable_by_key(|rule| (rule.gid, rule.sid));
        (report.conversations > 0).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use squall_attacks::{Exchange, Octets, Turn, wire::Endpoints};

    use super::*;

    fn attack(transport: AttackTransport, turns: Vec<Turn>) -> Attack {
        let exchange = Exchange {
            transport,
            client_port: 40_000,
            server_port: 80,
            turns,
            same_address: false,
            ip_version: None,
        };
        let ends = Endpoints {
            client: "10.0.0.1".parse().unwrap(),
            server: "198.18.0.1".parse().unwrap(),
            client_mac: [2, 0, 0, 0, 0, 1],
            server_mac: [2, 0, 0, 0, 0, 2],
        };
        Attack {
            number: 0,
            begin: Nanos::ZERO,
            rule: 0,
            kind: Kind::Attack,
            exchanges: Arc::new(vec![exchange]),
            ends,
            setters: Arc::default(),
            note: String::new(),
        }
    }

    #[test]
    fn an_attack_that_needs_headers_is_not_a_conversation() {
        let turn = |from| Turn::new(from, Octets::framing(b"hello".as_slice()));
        assert!(is_conversation(&attack(
            AttackTransport::Tcp,
            vec![turn(End::Server), turn(End::Client)]
        )));
        assert!(is_conversation(&attack(AttackTransport::Udp, vec![turn(End::Client)])));
        assert!(!is_conversation(&attack(AttackTransport::Udp, vec![turn(End::Server)])));
        assert!(!is_conversation(&attack(AttackTransport::Icmp, vec![turn(End::Client)])));
        let low = Turn { shape: Shape { ttl: Some(3), ..Shape::default() }, ..turn(End::Client) };
        assert!(!is_conversation(&attack(AttackTransport::Tcp, vec![low])));
        let whole = Turn { shape: Shape { whole: true, ..Shape::default() }, ..turn(End::Client) };
        assert!(is_conversation(&attack(AttackTransport::Tcp, vec![whole])));
    }
}
