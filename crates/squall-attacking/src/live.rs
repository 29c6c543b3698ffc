//! Attacks as conversations on Squall's own TCP and UDP stack.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use squall_apps::{Import, ImportOptions, Transport, import};
use squall_attacks::{
    End, Label, Origin, Shape, Transport as AttackTransport, labels::Kind, suite::Attack,
    wire::Settings,
};
use squall_flows::{FailedConversation, Failure, HostedFlow, Served};
use squall_pcap::CaptureReader;
use squall_plan::flows::PlayedScript;
use squall_profile::{Attack as AttackSpec, Begin, Conversations, Flows};
use squall_report::report::attack::{PassageReport, RulePassage};
use squall_rules::RuleSet;
use squall_units::Nanos;

use crate::{
    Capture, Error, Line, Merged,
    hosts::{LiveConversation, is_cut_short},
    passage::{Passage, PassageChecker},
};

/// The conversations, and the label for each.
#[derive(Clone, Debug)]
pub struct Live {
    pub(crate) import: Arc<Import>,
    /// Index of the label for each conversation, by its number in `import`.
    labels: Arc<Vec<Option<usize>>>,
    /// If the clients are hosts: the number of their group, and the attack of each conversation.
    hosts: Option<(usize, Arc<Vec<u32>>)>,
}

/// Whether TCP or UDP sockets can play the attack as well as prepared frames can. They can if the
/// rule tests no headers, and the client starts.
pub(crate) fn is_conversation(attack: &Attack, settings: &Settings) -> bool {
    let headers = if attack.ends.client.is_ipv6() { 40 + 8 } else { 20 + 8 };
    let most = MAX_DATAGRAM.min(usize::from(settings.mtu).saturating_sub(headers));
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
                        && exchange.turns.iter().all(|turn| turn.octets.len() <= most)
                }
                AttackTransport::Segments | AttackTransport::Icmp | AttackTransport::Ip(_) => false,
            };
            transport_fits && usual && !exchange.same_address && !exchange.turns.is_empty()
        })
}

/// Whether a rule of the attack, or one played before it, matches what the server sends.
pub(crate) fn needs_server(attack: &Attack, rules: &RuleSet) -> bool {
    let mut played = attack.setters.iter().chain([&attack.rule]);
    let to_client = played.any(|&rule| rules.rules[rule].flow.to == Some(End::Client));
    let turns = attack.exchanges.iter().flat_map(|exchange| &exchange.turns);
    let mut turns = turns.filter(|turn| turn.from == End::Server);
    let is_required = |of: &Origin| matches!(of, Origin::Option(_) | Origin::Setter(_));
    turns.any(|turn| to_client || turn.octets.origins().iter().any(is_required))
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
    /// `hosts`: the number of the group whose hosts are the clients.
    pub fn of(lines: Vec<Line>, labels: &[Label], hosts: Option<usize>) -> Result<Self, Error> {
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
        let of: Vec<Option<usize>> = of.collect();
        // A conversation without a label is a party of its own.
        let party = |(number, label): (usize, &Option<usize>)| {
            label.map_or(u32::MAX - number as u32, |label| labels[label].attack as u32)
        };
        let parties = || Arc::new(of.iter().enumerate().map(party).collect());
        let hosts = hosts.map(|group| (group, parties()));
        Ok(Live { import: Arc::new(import), labels: Arc::new(of), hosts })
    }

    /// The hosts in the form in which flows have them.
    pub(crate) fn hosts(&self) -> Option<(usize, Vec<u32>)> {
        self.hosts.as_ref().map(|(group, parties)| (*group, parties.to_vec()))
    }

    /// The conversations of hosts that have begun or were refused, by their labels. `is_between`:
    /// the servers are on the other port, so the passage report has the other failures.
    pub(crate) fn of_hosts(
        &self,
        script: &PlayedScript<'_>,
        hosted: &[HostedFlow],
        is_between: bool,
    ) -> HashMap<usize, LiveConversation> {
        let counts = |failure: &Failure| !is_between || *failure == Failure::AddressLost;
        let of = |one: &HostedFlow| {
            let number = (one.number as usize).checked_sub(script.before)?;
            let number = script.plan.numbers.get(number)?;
            let label = self.labels.get((*number as usize).wrapping_sub(1)).copied().flatten()?;
            let unsent = one.not_begun.or(one.failure.filter(counts).map(Failure::name));
            Some((label, LiveConversation { client: one.client, unsent }))
        };
        hosted.iter().filter_map(of).collect()
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
            // A client that lost its address says nothing about the device.
            if label.begin > end || is_cut_short(label) {
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
    use squall_rules::Variables;

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
        let is_conversation = |attack: &Attack| is_conversation(attack, &Settings::default());
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

    #[test]
    fn a_datagram_that_would_leave_in_fragments_is_not_a_conversation() {
        let longest = |client: &str, mtu| {
            let settings = Settings { mtu, ..Settings::default() };
            let fits = |octets: &usize| {
                let octets = Octets::framing(vec![b'a'; *octets]);
                let mut of = attack(AttackTransport::Udp, vec![Turn::new(End::Client, octets)]);
                of.ends.client = client.parse().unwrap();
                is_conversation(&of, &settings)
            };
            (1..1500).rev().find(fits)
        };
        assert_eq!([576, 1500].map(|mtu| longest("10.0.0.1", mtu)), [Some(548), Some(1452)]);
        assert_eq!([1280, 1500].map(|mtu| longest("2001:db8::1", mtu)), [Some(1232), Some(1452)]);
    }

    #[test]
    fn an_attack_needs_its_server_if_a_rule_matches_what_that_sends() {
        let rules = "alert tcp any any -> any 80 (content:\"a\"; sid:1;)\n\
                     alert tcp any 80 -> any any (flow:to_client; dsize:5; sid:2;)\n";
        let rules = RuleSet::parse(rules, &Variables::standard());
        let turn = |from, origin| Turn::new(from, Octets::of(b"hello".as_slice(), origin));
        let of = |turns| attack(AttackTransport::Tcp, turns);
        let option = Origin::Option(0);
        let asked = of(vec![turn(End::Client, option), turn(End::Server, Origin::Framing)]);
        assert!(!needs_server(&asked, &rules));
        assert!(needs_server(&Attack { rule: 1, ..asked.clone() }, &rules));
        assert!(needs_server(&Attack { setters: Arc::new(vec![1]), ..asked }, &rules));
        assert!(needs_server(&of(vec![turn(End::Server, option)]), &rules));
        assert!(!needs_server(&Attack { rule: 1, ..of(vec![turn(End::Client, option)]) }, &rules));
    }
}
