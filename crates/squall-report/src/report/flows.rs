//! Flows that a run began and served: the part of a report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// Flows of all templates, by who did what: clients began them, servers accepted them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowsReport {
    /// From the beginning of the load until the last flow was gone.
    pub duration_s: f64,
    /// Of these, until the last flow was due (one gap behind it): what is left is the drain. Where
    /// no clients are ours, all.
    #[serde(default)]
    pub arrivals_s: f64,
    /// In the order of the profile.
    pub templates: Vec<TemplateReport>,
    /// All templates together.
    pub total: RolesReport,
    /// Frames of each side that were no flow's, or got lost on the way to one; by port.
    pub links: Vec<LinkReport>,
    /// Pools of clients of which an address had all its ports busy at some time.
    pub exhausted: Vec<ExhaustedReport>,
    /// Of conversations of a capture that were played: `templates` are their kinds.
    pub conversations: Option<ConversationsReport>,
}

/// A capture whose conversations were played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationsReport {
    pub capture: String,
    /// Packets of it, of those that the filter took.
    pub packets: u64,
    /// Of these, packets that are in no conversation, by reason: `other_protocols`, `damaged`,
    /// `fragments`, `multicast`, `silent`, `port_zero`.
    pub packets_left_out: BTreeMap<String, u64>,
    /// Conversations that there are, and those of them that are played.
    pub found: u64,
    pub playable: u64,
    /// Conversations of which the capture has one direction only: what the other side said is not
    /// known, and is not played. Of UDP, where one side may say all, only if no conversation of the
    /// capture has both.
    #[serde(default)]
    pub one_sided: u64,
    /// Each this number of times; `null`: until the run ended.
    pub loops: Option<u64>,
    /// Conversations that are not played, by reason: `mid_stream` (the capture lacks their
    /// beginning), `holes` (it lacks octets), `no_free_port`, `no_client_address`, `other_family`
    /// (client and server are of different families).
    pub not_played: BTreeMap<String, u64>,
    /// The first of them.
    pub not_played_first: Vec<ConversationNote>,
    /// What is played, by kind, in the order of `templates`.
    pub kinds: Vec<KindReport>,
    /// The first that failed, by what their clients (or else servers) say.
    pub failed_first: Vec<ConversationNote>,
    /// Each side of ours received as many octets as it did in the capture; `null`: not all
    /// conversations were played to their ends.
    pub octets_as_captured: Option<bool>,
}

/// Conversations of one kind, as they were captured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindReport {
    pub name: String,
    pub conversations: u64,
    /// Of application data.
    pub octets_to_server: u64,
    pub octets_to_client: u64,
}

/// A conversation of a capture, and what is to be said of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationNote {
    /// In the capture, from 1, in the order of their first packets.
    pub number: u64,
    /// Transport, client and server.
    pub flow: String,
    /// Why it is not played, or how it failed.
    pub reason: String,
}

/// Flows of one template, at both ends as far as they were ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateReport {
    pub name: String,
    #[serde(flatten)]
    pub roles: RolesReport,
}

/// Both ends of flows, as far as they were ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolesReport {
    pub client: Option<RoleReport>,
    pub server: Option<RoleReport>,
}

/// Flows at one end. `attempted` is the sum of `completed`, `failed` and `active`; `asked` is those
/// and `not_begun`, and while the run goes on those that are due and wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleReport {
    /// Due so far, by the schedule alone; of clients.
    #[serde(default)]
    pub asked: Option<u64>,
    /// Begun: a SYN or first datagram left (client), or came and was accepted (server).
    pub attempted: u64,
    /// The handshake was done; of UDP, at once.
    pub established: u64,
    /// Ended as they should: both sides closed, the program came to its end.
    pub completed: u64,
    /// Ended otherwise, by reason: `unfinished`, `aborted`, `stopped` (open when the drain time was
    /// over), `reset`, `refused`, `unreachable`, `connect_timeout`, `timeout`, `keepalive_timeout`.
    pub failed: BTreeMap<String, u64>,
    /// What peers did that the programs do not say: `unexpected_data`, `too_short`, `no_answer`,
    /// `bad_http`; of TLS: `tls_alert`, `tls_certificate`, `tls_incompatible`, `tls_broken`,
    /// `tls_closed`, `tls_timeout`.
    pub protocol_errors: BTreeMap<String, u64>,
    /// Due, and not begun, by reason: `late` (the generator was the bound), `ports_exhausted`,
    /// `unresolved`, `limit`, `full`.
    pub not_begun: BTreeMap<String, u64>,
    /// Open when the run ended, and at once at most.
    pub active: u64,
    pub peak_active: u64,
    /// Begun a second, over [`FlowsReport::arrivals_s`].
    pub cps: f64,
    /// Flows a second that were asked for, as it was last; `null` where others decide, as in a
    /// closed loop.
    #[serde(default)]
    pub asked_cps: Option<f64>,
    /// While all of the load was asked for; of clients.
    #[serde(default)]
    pub steady: Option<SteadyReport>,
    /// Of all templates together: the second in which most began, and the one in which most
    /// completed.
    #[serde(default)]
    pub busiest_second: Option<BusiestSecond>,
    /// From the SYN to the end of the handshake.
    pub setup_ns: Option<Distribution>,
    /// From a request to the first octet of its answer, and to its last.
    pub first_byte_ns: Option<Distribution>,
    pub transaction_ns: Option<Distribution>,
    /// From the beginning of a flow to its end, of those that completed.
    pub duration_ns: Option<Distribution>,
    /// The same from the instant at which the flow was due: with the time it waited to begin
    /// (coordinated omission).
    pub duration_from_due_ns: Option<Distribution>,
    /// Of application data.
    pub received_octets: u64,
    pub sent_octets: u64,
    /// Application data received, bits a second.
    pub goodput_bps: f64,
    /// Responses by class of their status: `1xx` to `5xx`.
    pub http: BTreeMap<String, u64>,
    /// What the stack counted; TRex's names are in the guide.
    pub tcp: BTreeMap<String, u64>,
    /// Of templates with TLS.
    #[serde(default)]
    pub tls: Option<TlsReport>,
}

/// TLS sessions of flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsReport {
    /// That were completed.
    pub handshakes: u64,
    /// Of these, those that went on with an earlier session.
    pub resumed: u64,
    pub handshakes_per_second: f64,
    /// From the end of TCP's handshake to that of TLS.
    pub handshake_ns: Option<Distribution>,
    /// Sessions that failed, in the handshake or later, by what was wrong.
    pub failed: BTreeMap<String, u64>,
    /// The peer closed the flow without closing the session.
    pub truncated: u64,
    /// Handshakes by cipher suite: `TLS13_AES_256_GCM_SHA384`.
    pub ciphers: BTreeMap<String, u64>,
}

/// The part of a run behind the ramp up and before the ramp down, the drain, and whatever ended it:
/// what a device carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyReport {
    pub duration_s: f64,
    /// Flows that began, and that ended as they should, a second.
    pub attempted_cps: f64,
    pub completed_cps: f64,
    /// Application data received, bits a second.
    pub goodput_bps: f64,
}

/// Most flows that began, and most that completed, in a second of the run. Seconds count from the
/// beginning of the load; one that the run ended in does not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusiestSecond {
    pub attempted: u64,
    pub completed: u64,
}

/// Frames of a side that were no flow's, or got lost on the way to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    pub port: String,
    /// `frames_received`, `not_ours`, `malformed`, `arp_requests_answered`, `unresolved` ...
    pub counters: BTreeMap<String, u64>,
}

/// A pool of clients of which an address had all its ports busy at some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExhaustedReport {
    pub pool: String,
    /// Addresses of which all ports were busy at some time.
    pub addresses: u64,
    /// Flows that were not begun for it.
    pub flows: u64,
}

impl FlowsReport {
    pub(super) fn distributions_mut(&mut self) -> impl Iterator<Item = &mut Option<Distribution>> {
        let roles =
            self.templates.iter_mut().map(|template| &mut template.roles).chain([&mut self.total]);
        roles.flat_map(|roles| roles.client.iter_mut().chain(&mut roles.server)).flat_map(|role| {
            let RoleReport {
                setup_ns,
                first_byte_ns,
                transaction_ns,
                duration_ns,
                duration_from_due_ns,
                tls,
                ..
            } = role;
            let flow = [setup_ns, first_byte_ns, transaction_ns, duration_ns, duration_from_due_ns];
            flow.into_iter().chain(tls.as_mut().map(|tls| &mut tls.handshake_ns))
        })
    }
}

/// What the sum over several templates is called.
pub const ALL: &str = "all templates";

impl FlowsReport {
    /// Template, side and figures; behind several templates their sum, [`ALL`].
    pub fn rows(&self) -> impl Iterator<Item = (&str, &'static str, &RoleReport)> {
        let total = (self.templates.len() > 1).then_some((ALL, &self.total));
        let templates =
            self.templates.iter().map(|template| (template.name.as_str(), &template.roles));
        templates.chain(total).flat_map(|(name, roles)| {
            let sides = [("client", &roles.client), ("server", &roles.server)];
            sides.into_iter().filter_map(move |(side, role)| Some((name, side, role.as_ref()?)))
        })
    }
}

impl RoleReport {
    /// Counts by reason, and of what.
    pub fn reasons(&self) -> [(&'static str, &BTreeMap<String, u64>); 4] {
        [
            ("failed", &self.failed),
            ("not as programs say", &self.protocol_errors),
            ("not begun", &self.not_begun),
            ("HTTP", &self.http),
        ]
    }

    /// What there is to say of TLS, and each number of it.
    pub fn tls(&self) -> Vec<(String, u64)> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let ciphers = tls.ciphers.iter().map(|(cipher, n)| (format!("handshakes by {cipher}"), *n));
        let failed = tls.failed.iter().map(|(why, n)| (format!("failed: {why}"), *n));
        let others = [("resumed", tls.resumed), ("closed without close_notify", tls.truncated)];
        let others =
            others.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n));
        ciphers.chain(others).chain(failed).collect()
    }

    /// Begun a second where that is meant to be constant; without such a part, over all of the run.
    pub fn achieved_cps(&self) -> f64 {
        self.steady.as_ref().map_or(self.cps, |steady| steady.attempted_cps)
    }

    /// Segments that were sent again.
    pub fn retransmits(&self) -> u64 {
        let kinds = ["retransmit_rto", "retransmit_fast", "retransmit_sack", "retransmit_syn"];
        kinds.iter().filter_map(|kind| self.tcp.get(*kind)).sum()
    }

    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Due, and not begun.
    pub fn missed(&self) -> u64 {
        self.not_begun.values().sum()
    }
}
