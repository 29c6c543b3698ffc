//! Attacks of hosts: whether their frames can have other addresses than those with which they were
//! made, and labels with the addresses that were sent.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use squall_attacks::{
    End, Label,
    suite::{self, Suite},
    wire,
};
use squall_edit::set_addresses;
use squall_engine::HostedConversation;
use squall_plan::ReplayHosts;
use squall_report::report::attack::AttackReport;
use squall_rules::RuleSet;
use squall_units::Nanos;

use crate::NEVER;

/// The attacks of a section that leave from hosts, or go to them.
#[derive(Clone)]
pub(crate) struct OfHosts {
    pub hosts: ReplayHosts,
    /// Number of the section's first attack in the run.
    pub first: u64,
    /// The rules and their attacks, in order of their numbers; `None` for a template.
    pub suite: Option<(Arc<RuleSet>, Arc<Suite>)>,
}

/// The end of a live conversation whose client is a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveConversation {
    /// The address of the host, if the conversation has begun.
    pub client: Option<IpAddr>,
    /// Why it did not begin, or ended early.
    pub unsent: Option<&'static str>,
}

/// Counts of attacks.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Attacks that did not leave as a whole, by reason.
    pub unsent: BTreeMap<String, u64>,
    /// Attacks whose rules do not allow the addresses of their hosts.
    pub unseen: u64,
}

impl Outcome {
    /// Adds the counts to the report of their section.
    pub fn add_to(self, report: &mut AttackReport) {
        report.unseen += self.unseen;
        for (reason, attacks) in self.unsent {
            *report.unsent.entry(reason).or_default() += attacks;
        }
    }
}

/// The note of an attack whose host has an address that its rules exclude.
const NOT_ALLOWED: &str = "the rule does not allow the address of the host";
/// The beginning of the note of an attack that ended early; the reason follows.
const CUT_SHORT: &str = "cut short: ";

/// Whether the label is that of an attack that ended early.
pub(crate) fn is_cut_short(label: &Label) -> bool {
    label.note.starts_with(CUT_SHORT)
}

/// Whether other addresses of the hosts change nothing but the headers of the attack's `frames`. A
/// payload may have an address, too, such as the packet that an ICMP error quotes.
///
/// # Errors
/// If the attack cannot be written as packets.
pub(crate) fn are_in_headers_only(
    attack: &suite::Attack,
    frames: &[wire::Frame],
    hosts: ReplayHosts,
    rules: &RuleSet,
    settings: &wire::Settings,
) -> Result<bool, wire::Error> {
    let mut other = attack.clone();
    let client = hosts.clients.map(|_| another(attack.ends.client));
    let server = hosts.servers.map(|_| another(attack.ends.server));
    other.ends.client = client.unwrap_or(attack.ends.client);
    other.ends.server = server.unwrap_or(attack.ends.server);
    let (others, _) = other.frames(rules, settings)?;
    let becomes = |(frame, other): (&wire::Frame, &wire::Frame)| {
        let mut octets = frame.octets.clone();
        match frame.from {
            End::Client => set_addresses(&mut octets, client, server),
            End::Server => set_addresses(&mut octets, server, client),
        }
        octets == other.octets
    };
    Ok(frames.len() == others.len() && frames.iter().zip(&others).all(becomes))
}

/// Another address, which differs in each octet.
fn another(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(!address.to_bits()).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(!address.to_bits()).into(),
    }
}

impl OfHosts {
    /// Gives `labels` the addresses that were sent, and corrects their numbers of frames and
    /// alerts. `used` has the hosts of each attack; `left` maps a planned time to the departure
    /// time. Labels of `live` attacks do not change.
    pub fn settle(
        &self,
        labels: &mut [Label],
        (used, live): (&HashMap<u64, HostedConversation>, &HashSet<u64>),
        left: impl Fn(Nanos) -> Nanos,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for reason in used.values().filter_map(|of| of.unsent) {
            *outcome.unsent.entry(reason.into()).or_default() += 1;
        }
        for labels in labels.chunk_by_mut(|one, other| one.attack == other.attack) {
            if live.contains(&labels[0].attack) {
                continue;
            }
            let number = labels[0].attack - self.first;
            let Some(of) = used.get(&number) else {
                // It was not due before the end of the run.
                *outcome.unsent.entry("not_begun".into()).or_default() += 1;
                labels.iter_mut().for_each(|label| (label.begin, label.end) = (NEVER, NEVER));
                continue;
            };
            let is_allowed = self.allows(number, of);
            outcome.unseen += u64::from(!is_allowed && labels.iter().any(|label| label.alerts > 0));
            let mut rest = of.unsent.map(|reason| (of.sent, reason));
            for label in labels {
                label.source = of.client.unwrap_or(label.source);
                label.destination = of.server.unwrap_or(label.destination);
                if label.alerts > 0 && !is_allowed {
                    (label.alerts, label.note) = (0, NOT_ALLOWED.into());
                }
                let Some((sent, reason)) = &mut rest else { continue };
                if *sent == 0 {
                    (label.begin, label.end) = (NEVER, NEVER);
                } else if *sent < label.frames {
                    (label.frames, label.end) = (*sent, left(of.last.as_nanos()));
                    (label.alerts, label.note) = (0, format!("{CUT_SHORT}{reason}"));
                }
                *sent = sent.saturating_sub(label.frames);
            }
        }
        outcome
    }

    /// As [`OfHosts::settle`], for the labels of live conversations, which `of` gives by the index
    /// of the label. `None`: it is not live, or its conversation is not in the result because the
    /// run ended before it was due; `live` has the attacks.
    pub fn settle_live(
        &self,
        labels: &mut [Label],
        live: &HashSet<u64>,
        of: impl Fn(usize) -> Option<LiveConversation>,
    ) -> Outcome {
        let (mut unsent, mut unseen) = (BTreeMap::new(), BTreeSet::new());
        for (i, label) in labels.iter_mut().enumerate() {
            if !live.contains(&label.attack) {
                continue;
            }
            let not_begun = LiveConversation { client: None, unsent: Some("not_begun") };
            let LiveConversation { client, unsent: reason } = of(i).unwrap_or(not_begun);
            // An attack is not whole any more after its first conversation that was not.
            let reason = unsent.get(&label.attack).copied().or(reason);
            if let Some(reason) = reason {
                unsent.insert(label.attack, reason);
            }
            let Some(client) = client else {
                (label.begin, label.end) = (NEVER, NEVER);
                continue;
            };
            label.source = client;
            let of = HostedConversation { client: Some(client), ..HostedConversation::default() };
            if label.alerts > 0 && !self.allows(label.attack - self.first, &of) {
                unseen.insert(label.attack);
                (label.alerts, label.note) = (0, NOT_ALLOWED.into());
            }
            if let Some(reason) = reason {
                (label.alerts, label.note) = (0, format!("{CUT_SHORT}{reason}"));
            }
        }
        let mut outcome = Outcome { unseen: unseen.len() as u64, ..Outcome::default() };
        for reason in unsent.into_values() {
            *outcome.unsent.entry(reason.into()).or_default() += 1;
        }
        outcome
    }

    /// Whether the rules of an attack allow the addresses of its hosts.
    fn allows(&self, number: u64, of: &HostedConversation) -> bool {
        let Some((rules, suite)) = &self.suite else { return true };
        let found = suite.attacks.binary_search_by_key(&number, |attack| attack.number);
        found.is_ok_and(|found| suite.attacks[found].allows(rules, of.client, of.server))
    }
}

#[cfg(test)]
mod tests {
    use squall_attacks::{Exchange, Octets, Transport, Turn, labels::Kind, wire::Endpoints};
    use squall_rules::Variables;
    use squall_units::Picos;

    use super::*;

    fn rules() -> RuleSet {
        let text =
            "alert udp $EXTERNAL_NET any -> $HOME_NET 7 (msg:\"T\"; content:\"a\"; sid:1;)\n";
        RuleSet::parse(text, &Variables::standard())
    }

    fn attack(transport: Transport, payload: &[u8]) -> suite::Attack {
        let exchange = Exchange {
            transport,
            client_port: 40_000,
            server_port: 7,
            turns: vec![Turn::new(End::Client, Octets::framing(payload))],
            same_address: false,
            ip_version: None,
        };
        suite::Attack {
            number: 0,
            begin: Nanos::ZERO,
            rule: 0,
            kind: Kind::Attack,
            exchanges: Arc::new(vec![exchange]),
            ends: Endpoints {
                client: [198, 18, 0, 1].into(),
                server: [10, 0, 0, 1].into(),
                client_mac: [2, 0, 0, 0, 0, 1],
                server_mac: [2, 0, 0, 0, 0, 2],
            },
            setters: Arc::default(),
            note: String::new(),
        }
    }

    const CLIENTS: ReplayHosts = ReplayHosts { clients: Some(0), servers: None };

    #[test]
    fn a_rule_of_both_directions_allows_a_host_only_together_with_the_other_end() {
        let text =
            "alert udp $HOME_NET any <> $EXTERNAL_NET 7 (msg:\"T\"; content:\"a\"; sid:1;)\n";
        let rules = RuleSet::parse(text, &Variables::standard());
        let mut attack = attack(Transport::Udp, b"a");
        attack.ends.client = [10, 0, 0, 2].into();
        attack.ends.server = [198, 18, 0, 1].into();
        let allows = |client: [u8; 4]| attack.allows(&rules, Some(client.into()), None);
        assert!(allows([10, 0, 0, 9]));
        assert!(!allows([192, 0, 2, 1]), "both ends are outside");
    }

    #[test]
    fn an_attack_with_the_address_of_its_host_elsewhere_is_recognized() {
        let (rules, settings) = (rules(), wire::Settings::default());
        let fits = |attack: &suite::Attack, settings: &wire::Settings| {
            let (frames, _) = attack.frames(&rules, settings).unwrap();
            are_in_headers_only(attack, &frames, CLIENTS, &rules, settings).unwrap()
        };
        assert!(fits(&attack(Transport::Tcp, b"hello"), &settings));
        let pieces = vec![squall_attacks::Evasion::Fragments(8)];
        let pieces = wire::Settings { evasions: pieces, vlans: vec![7], ..settings.clone() };
        assert!(fits(&attack(Transport::Tcp, b"hello, in fragments"), &pieces));
        // Both addresses are that of the client (sameip).
        let mut same = attack(Transport::Udp, b"hello");
        Arc::make_mut(&mut same.exchanges)[0].same_address = true;
        assert!(!fits(&same, &settings));
    }

    #[test]
    fn labels_have_the_addresses_that_were_sent_and_owe_what_left_as_a_whole() {
        let rules = Arc::new(rules());
        let attacks = (0..5).map(|number| suite::Attack {
            number,
            exchanges: Arc::new(
                [0, 1].map(|_| attack(Transport::Udp, b"a").exchanges[0].clone()).to_vec(),
            ),
            ..attack(Transport::Udp, b"a")
        });
        let suite = Arc::new(Suite { attacks: attacks.collect(), without_address: 0 });
        let settings = wire::Settings::default();
        let of = |attack: &suite::Attack| attack.frames(&rules, &settings).unwrap().1;
        let mut labels: Vec<Label> = suite.attacks.iter().flat_map(of).collect();
        labels.iter_mut().for_each(|label| label.attack += 10);
        assert!(labels.iter().all(|label| label.frames == 1));
        let hosted = |client: [u8; 4], sent, unsent| HostedConversation {
            client: Some(client.into()),
            sent,
            unsent,
            last: Picos(7_000_000),
            ..HostedConversation::default()
        };
        let used = [
            (0, hosted([192, 0, 2, 1], 2, None)),
            (1, hosted([10, 0, 0, 9], 2, None)),
            (2, hosted([192, 0, 2, 3], 1, Some("address_lost"))),
            (3, HostedConversation { unsent: Some("no_host"), ..Default::default() }),
        ];
        let section =
            OfHosts { hosts: CLIENTS, first: 10, suite: Some((rules.clone(), suite.clone())) };
        let none = HashSet::new();
        let outcome = section.settle(&mut labels, (&used.into(), &none), |time| time);
        assert_eq!(outcome.unseen, 1, "a host of HOME_NET is not outside");
        assert_eq!(
            outcome.unsent,
            [("address_lost", 1), ("no_host", 1), ("not_begun", 1)]
                .map(|(why, n)| (why.to_owned(), n))
                .into()
        );
        let seen =
            |i: usize| (labels[i].source.to_string(), labels[i].alerts, labels[i].begin == NEVER);
        assert_eq!(
            [0, 1].map(seen),
            [("192.0.2.1".into(), 0, false), ("192.0.2.1".into(), 1, false)]
        );
        assert_eq!(seen(3), ("10.0.0.9".into(), 0, false));
        assert_eq!(labels[3].note, NOT_ALLOWED);
        assert_eq!([4, 5].map(|i| seen(i).2), [false, true], "the second one did not begin");
        assert!((6..10).all(|i| seen(i).2), "without a host, and not due");
        // Some frames of a conversation have left, others have not.
        labels.truncate(2);
        labels.iter_mut().for_each(|label| (label.frames, label.alerts) = (4, 1));
        let used = [(0, hosted([192, 0, 2, 1], 6, Some("address_lost")))].into();
        section.settle(&mut labels, (&used, &none), |time| time);
        let of = |i: usize| (labels[i].frames, labels[i].alerts, is_cut_short(&labels[i]));
        assert_eq!([of(0), of(1)], [(4, 1, false), (2, 0, true)]);
        assert_eq!(labels[1].end, Nanos(7_000));
    }

    #[test]
    fn labels_of_live_conversations_have_the_addresses_of_their_hosts() {
        let rules = Arc::new(rules());
        let attacks = (0..6).map(|number| suite::Attack { number, ..attack(Transport::Udp, b"a") });
        let suite = Arc::new(Suite { attacks: attacks.collect(), without_address: 0 });
        let settings = wire::Settings::default();
        let of = |attack: &suite::Attack| attack.frames(&rules, &settings).unwrap().1;
        let planned: Vec<Label> = suite.attacks.iter().flat_map(of).collect();
        let section =
            OfHosts { hosts: CLIENTS, first: 0, suite: Some((rules.clone(), suite.clone())) };
        let conversation = |client: Option<[u8; 4]>, unsent| {
            Some(LiveConversation { client: client.map(IpAddr::from), unsent })
        };
        let ends = [
            conversation(Some([192, 0, 2, 1]), None),
            conversation(Some([10, 0, 0, 9]), None),
            conversation(Some([192, 0, 2, 3]), Some("address_lost")),
            conversation(None, Some("no_host")),
            None,
        ];
        // The last attack is sent as frames.
        let (mut labels, live) = (planned.clone(), (0..5).collect());
        let outcome = section.settle_live(&mut labels, &live, |i| ends.get(i).copied().flatten());
        let reasons = [("address_lost", 1), ("no_host", 1), ("not_begun", 1)];
        assert_eq!(outcome.unsent, reasons.map(|(why, n)| (why.to_owned(), n)).into());
        assert_eq!((outcome.unseen, labels[1].note.as_str()), (1, NOT_ALLOWED));
        let seen = |label: &Label| (label.source.to_string(), label.alerts, label.begin == NEVER);
        let sources = ["192.0.2.1", "10.0.0.9", "192.0.2.3", "198.18.0.1", "198.18.0.1"];
        let alerts = [(1, false), (0, false), (0, false), (1, true), (1, true)];
        for ((label, source), (alerts, is_never)) in labels.iter().zip(sources).zip(alerts) {
            assert_eq!(seen(label), (source.into(), alerts, is_never));
        }
        assert!(is_cut_short(&labels[2]) && !is_cut_short(&labels[1]));
        assert_eq!(labels[5], planned[5]);
        let used = HashMap::new();
        let outcome = section.settle(&mut labels, (&used, &live), |time| time);
        assert_eq!(outcome.unsent, [("not_begun".to_owned(), 1)].into(), "the one of frames");
        assert_eq!((labels[0].begin == NEVER, labels[5].begin == NEVER), (false, true));

        // The first conversation of an attack did not begin, but the second one did.
        let mut labels = planned[..2].to_vec();
        labels[1].attack = 0;
        let ends = [conversation(None, Some("limit")), conversation(Some([192, 0, 2, 1]), None)];
        let outcome = section.settle_live(&mut labels, &live, |i| ends[i]);
        assert_eq!(outcome.unsent, [("limit".to_owned(), 1)].into());
        let of = |label: &Label| (label.alerts, label.begin == NEVER, label.note.clone());
        assert_eq!(
            labels.iter().map(of).collect::<Vec<_>>(),
            [(1, true, String::new()), (0, false, "cut short: limit".into())]
        );
    }
}
