//! The section of a report for flows that a run opened and served.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// Flows of all templates by role: clients open flows, and servers accept them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowsReport {
    /// Time from the start of the load to the end of the last flow.
    pub duration_s: f64,
    /// Time from the start of the load to one gap after the last flow was due; the drain follows.
    /// Equal to `duration_s` if the run has no clients.
    #[serde(default)]
    pub arrivals_s: f64,
    /// Templates in the order of the profile.
    pub templates: Vec<TemplateReport>,
    /// Sum of all templates.
    pub total: RolesReport,
    /// Frames of each port that belonged to no flow, or were lost before they reached a flow.
    pub links: Vec<LinkReport>,
    /// Client pools with an address that had all its ports in use at some time.
    pub exhausted: Vec<ExhaustedReport>,
    /// Replayed conversations of a capture; `templates` are their kinds.
    pub conversations: Option<ConversationsReport>,
}

/// A capture whose conversations were replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationsReport {
    pub capture: String,
    /// Packets in the capture that the filter accepted.
    pub packets: u64,
    /// Packets among these that belong to no conversation, by reason: `other_protocols`, `damaged`,
    /// `fragments`, `multicast`, `silent`, `port_zero`.
    pub packets_left_out: BTreeMap<String, u64>,
    /// Number of conversations in the capture, and of those that are replayed.
    pub found: u64,
    pub playable: u64,
    /// Conversations with only one direction in the capture. The data of the other side is unknown
    /// and not replayed. Conversations over UDP count only if no conversation of the capture has
    /// both directions, because one side may be silent.
    #[serde(default)]
    pub one_sided: u64,
    /// Number of times that each was replayed; `null` until the run has ended.
    pub loops: Option<u64>,
    /// Conversations that are not replayed, by reason: `mid_stream` (the capture lacks their
    /// start), `holes` (it lacks octets), `no_free_port`, `no_client_address`, `other_family`
    /// (client and server have different address families).
    pub not_played: BTreeMap<String, u64>,
    /// The first of these conversations.
    pub not_played_first: Vec<ConversationNote>,
    /// Replayed conversations by kind, in the order of `templates`.
    pub kinds: Vec<KindReport>,
    /// The first conversations that failed, each with the failure at the client, otherwise at the
    /// server.
    pub failed_first: Vec<ConversationNote>,
    /// Whether each side that Squall played received as many octets as in the capture; `null`: not
    /// all conversations were replayed to their end.
    pub octets_as_captured: Option<bool>,
}

/// Conversations of one kind, as captured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindReport {
    pub name: String,
    pub conversations: u64,
    /// Octets of application data.
    pub octets_to_server: u64,
    pub octets_to_client: u64,
}

/// A conversation in a capture, with a remark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConversationNote {
    /// Number in the capture, from 1, in the order of the first packets.
    pub number: u64,
    /// Transport, client and server.
    pub flow: String,
    /// Why it is not replayed, or how it failed.
    pub reason: String,
}

/// Flows of one template at the ends that Squall played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateReport {
    pub name: String,
    #[serde(flatten)]
    pub roles: RolesReport,
}

/// The ends of flows that Squall played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolesReport {
    pub client: Option<RoleReport>,
    pub server: Option<RoleReport>,
}

/// Flows at one end. `attempted` is the sum of `completed`, `failed` and `active`. `asked` is
/// `attempted` plus `not_begun` plus, during the run, flows that are due and waiting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleReport {
    /// Flows due so far according to the schedule; only for clients.
    #[serde(default)]
    pub asked: Option<u64>,
    /// Flows that started: a SYN or first datagram was sent (client), or received and accepted
    /// (server).
    pub attempted: u64,
    /// Flows whose handshake completed; over UDP, all flows.
    pub established: u64,
    /// Flows that ended normally: both sides closed, and the flow program reached its end.
    pub completed: u64,
    /// Flows that failed, by reason: `unfinished`, `aborted`, `stopped` (open when the drain time
    /// was over), `reset`, `refused`, `unreachable`, `connect_timeout`, `timeout`,
    /// `keepalive_timeout`, `idle`, `address_lost` (this end is a host whose lease ended).
    pub failed: BTreeMap<String, u64>,
    /// Deviations of peers from the flow program: `unexpected_data`, `too_short`, `no_answer`,
    /// `bad_http`, `bad_websocket`, `late_member` (of a group of WebSocket), `closed_early` (the
    /// server closed the connection before the last request); with HTTP/2 also `stream_reset` and
    /// `http2` (the peer broke a rule); with gRPC also `grpc_status` (not as expected),
    /// `grpc_compressed`, `bad_grpc`; with HTTP/3 also `stream_reset`, `http3`, `quic_closed`,
    /// `quic_timeout`, `quic_broken`; with the PROXY protocol also `proxy_missing`,
    /// `proxy_malformed`, `proxy_long`, `proxy_checksum`; with TLS also `tls_alert`,
    /// `tls_certificate`, `tls_incompatible`, `tls_broken`, `tls_closed`, `tls_timeout`.
    pub protocol_errors: BTreeMap<String, u64>,
    /// Requests of the flows that started; only for clients, and `null` if randomness or the server
    /// determines how many requests a flow makes.
    #[serde(default)]
    pub requests: Option<RequestsReport>,
    /// Counters that the flow program defines itself (`count`), including those that are 0.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Flows that were due and not started, by reason: `late` (the generator was the limit),
    /// `ports_exhausted`, `unresolved`, `limit`, `full`, `disabled`, `no_host`.
    pub not_begun: BTreeMap<String, u64>,
    /// Flows open when the run ended, and the most that were open at one time.
    pub active: u64,
    pub peak_active: u64,
    /// Flows started per second, over [`FlowsReport::arrivals_s`].
    pub cps: f64,
    /// Requested flows per second, last value; `null` if the load does not determine it, as in a
    /// closed loop.
    #[serde(default)]
    pub asked_cps: Option<f64>,
    /// Figures for the time at full load; only for clients.
    #[serde(default)]
    pub steady: Option<SteadyReport>,
    /// The seconds in which the most flows of all templates together started and completed.
    #[serde(default)]
    pub busiest_second: Option<BusiestSecond>,
    /// Time from the SYN to the end of the handshake.
    pub setup_ns: Option<Distribution>,
    /// Time from a request to the first octet of its answer, and to the last one.
    pub first_byte_ns: Option<Distribution>,
    pub transaction_ns: Option<Distribution>,
    /// Time from the start of a flow to the first octet of its first answer: with all handshakes.
    #[serde(default)]
    pub first_byte_from_start_ns: Option<Distribution>,
    /// Time from the start to the end of a flow, for completed flows.
    pub duration_ns: Option<Distribution>,
    /// The same, but from the time at which the flow was due, which includes the time it waited to
    /// start (coordinated omission).
    pub duration_from_due_ns: Option<Distribution>,
    /// Octets of application data.
    pub received_octets: u64,
    pub sent_octets: u64,
    /// Received application data in bits per second.
    pub goodput_bps: f64,
    /// HTTP responses by status class: `1xx` to `5xx`.
    pub http: BTreeMap<String, u64>,
    /// Counters of the TCP stack. The guide lists TRex's names for them.
    pub tcp: BTreeMap<String, u64>,
    /// TLS sessions; present only for templates that use TLS.
    #[serde(default)]
    pub tls: Option<TlsReport>,
    /// Connections of HTTP/2; present only for templates that use HTTP/2.
    #[serde(default)]
    pub http2: Option<Http2Report>,
    /// Connections of HTTP/3; present only for templates that use HTTP/3.
    #[serde(default)]
    pub http3: Option<Http3Report>,
}

/// Requests over flows, made by HTTP or by any program that sends and then waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestsReport {
    /// Requests that the flow programs of all started flows make, plus redirections followed.
    pub asked: u64,
    /// Requests sent. The others are missing because their flows ended earlier, or are still open.
    pub sent: u64,
    /// Requests with a complete answer.
    pub answered: u64,
}

/// TLS sessions of flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsReport {
    /// Completed handshakes.
    pub handshakes: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    pub handshakes_per_second: f64,
    /// Time from the end of the TCP handshake to the end of the TLS handshake.
    pub handshake_ns: Option<Distribution>,
    /// Sessions whose client sent requests before the end of the handshake (early data, 0-RTT); only
    /// for clients.
    #[serde(default)]
    pub early_offered: u64,
    /// Those whose server accepted that, and the octets of early data.
    #[serde(default)]
    pub early_accepted: u64,
    #[serde(default)]
    pub early_octets_accepted: u64,
    /// Those whose server refused it, and the octets, which were sent again; only for clients.
    #[serde(default)]
    pub early_refused: u64,
    #[serde(default)]
    pub early_octets_refused: u64,
    /// Sessions that failed, in the handshake or later, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Sessions whose peer closed the flow without closing the session.
    pub truncated: u64,
    /// Handshakes by cipher suite: `TLS13_AES_256_GCM_SHA384`.
    pub ciphers: BTreeMap<String, u64>,
}

/// Connections of HTTP/2, which are flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Http2Report {
    /// Connections that sent their preface.
    pub connections: u64,
    /// Connections of HTTP/1.1, because TLS had not agreed on HTTP/2.
    #[serde(default)]
    pub fallbacks: u64,
    /// Streams that were opened (clients), or on which a request arrived (servers).
    pub streams: u64,
    /// Heads of requests and responses, the octets of their fields, and the octets that remained
    /// after compression (HPACK).
    pub heads_sent: u64,
    pub head_octets_sent: u64,
    pub compressed_octets_sent: u64,
    pub heads_received: u64,
    pub head_octets_received: u64,
    pub compressed_octets_received: u64,
    /// Streams that were reset, by error code: `CANCEL`.
    pub resets_sent: BTreeMap<String, u64>,
    pub resets_received: BTreeMap<String, u64>,
    /// Streams that a GOAWAY of the server left out: it has not processed them.
    #[serde(default)]
    pub left_out: u64,
    /// Requests that were sent again, because the server had refused their streams.
    #[serde(default)]
    pub repeated: u64,
    /// Connections of which the peer announced the end (GOAWAY), by error code.
    pub goaways_received: BTreeMap<String, u64>,
    /// Actions of peers that the protocol forbids, or that exceeded a bound: `malformed`, `window`,
    /// `reset_flood` ...
    pub violations: BTreeMap<String, u64>,
    /// Priorities and unknown frames of peers, which are ignored.
    pub ignored: u64,
}

/// Connections of HTTP/3, which are flows. `setup_ns` of the flows is the time of the handshake of
/// QUIC, which includes that of TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Http3Report {
    /// Connections whose handshake was completed.
    pub connections: u64,
    /// Streams that were opened (clients), or on which a request arrived (servers).
    pub streams: u64,
    /// Heads of requests and responses, the octets of their fields, and the octets that remained
    /// after compression (QPACK).
    pub heads_sent: u64,
    pub head_octets_sent: u64,
    pub compressed_octets_sent: u64,
    pub heads_received: u64,
    pub head_octets_received: u64,
    pub compressed_octets_received: u64,
    /// Streams that were reset, by error code: `H3_REQUEST_CANCELLED`.
    pub resets_sent: BTreeMap<String, u64>,
    pub resets_received: BTreeMap<String, u64>,
    /// Streams that a GOAWAY of the server left out: it has not processed them.
    pub left_out: u64,
    /// Connections of which the peer announced the end (GOAWAY).
    pub goaways_received: u64,
    /// Actions of peers that the protocol forbids, or that exceeded a bound.
    pub violations: BTreeMap<String, u64>,
    /// Priorities, unknown frames and unknown streams of peers, which are ignored.
    pub ignored: u64,
    /// Packets of the connections that have ended: sent, and lost as acknowledgments showed.
    pub packets_sent: u64,
    pub packets_lost: u64,
    /// Times that loss reduced the congestion window of a connection that has ended.
    pub congestion_events: u64,
    /// Retry packets: sent by servers, received by clients.
    pub retries: u64,
    /// Version Negotiation packets: sent by servers, received by clients.
    pub version_negotiations: u64,
    /// Connections whose client sent requests before the end of the handshake (0-RTT), which the
    /// server accepted, or refused, so that they were sent again.
    pub early_accepted: u64,
    pub early_refused: u64,
    /// Datagrams that belong to no connection of their flow, or come from another address where the
    /// server forbids that.
    pub strays: u64,
    /// Moves to another address or port. A client counts those with another connection ID, a server
    /// all.
    #[serde(default)]
    pub migrations: u64,
    /// Changes of a client's port with the same connection ID, as by a NAT.
    #[serde(default)]
    pub rebindings: u64,
    /// Addresses of clients that were not validated in time, so that servers went back to the former
    /// ones.
    #[serde(default)]
    pub paths_failed: u64,
    /// Moves of clients that were not possible: `forbidden` by the server, `no_port` or `no_address` of
    /// the pool is free, or `no_connection_id` of the server, so that the move was one with the same
    /// ID.
    #[serde(default)]
    pub not_moved: BTreeMap<String, u64>,
}

/// The part of a run at full load: after the ramp up, and before the ramp down, the drain and the
/// end. It shows the load that a device sustains. Absent if it took less than 0.1 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyReport {
    pub duration_s: f64,
    /// Flows started and flows completed per second.
    pub attempted_cps: f64,
    pub completed_cps: f64,
    /// Received application data in bits per second.
    pub goodput_bps: f64,
}

/// Highest numbers of flows started and completed within one second of the run. Seconds count from
/// the start of the load. The second in which the run ended is excluded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusiestSecond {
    pub attempted: u64,
    pub completed: u64,
}

/// Frames of a port that belonged to no flow, or were lost before they reached one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    pub port: String,
    /// `frames_received`, `not_ours`, `malformed`, `bad_tcp_checksum`, `checksum_unverified`
    /// (frames accepted without a check, because the sending host left the checksum to its NIC),
    /// `accept_full` (flows of peers for which the flow table had no room),
    /// `arp_requests_answered`, `unresolved` ...
    pub counters: BTreeMap<String, u64>,
}

/// A client pool with an address that had all its ports in use at some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExhaustedReport {
    pub pool: String,
    /// Number of addresses that had all their ports in use at some time.
    pub addresses: u64,
    /// Number of flows that were not started because of this.
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
                first_byte_from_start_ns,
                transaction_ns,
                duration_ns,
                duration_from_due_ns,
                tls,
                ..
            } = role;
            let flow = [
                setup_ns,
                first_byte_ns,
                first_byte_from_start_ns,
                transaction_ns,
                duration_ns,
                duration_from_due_ns,
            ];
            flow.into_iter().chain(tls.as_mut().map(|tls| &mut tls.handshake_ns))
        })
    }
}

impl RolesReport {
    /// How the two ends of the flows differ, if Squall played both; `None` if they agree, or if the
    /// failures at one end explain the difference.
    pub fn difference(&self) -> Option<String> {
        let (client, server) = (self.client.as_ref()?, self.server.as_ref()?);
        if server.attempted > client.attempted {
            return Some(format!(
                "clients began {} flows, servers accepted {}",
                client.attempted, server.attempted
            ));
        }
        if server.failures() + client.failures() > 0 {
            return None;
        }
        if server.completed != client.completed {
            return Some(format!(
                "clients completed {} flows, servers {}",
                client.completed, server.completed
            ));
        }
        [("servers", server, "clients", client), ("clients", client, "servers", server)]
            .into_iter()
            .find(|(_, to, _, from)| to.received_octets != from.sent_octets)
            .map(|(receivers, to, senders, from)| {
                format!(
                    "{senders} sent {} octets, {receivers} received {}",
                    from.sent_octets, to.received_octets
                )
            })
    }
}

/// Name of the sum over several templates.
pub const ALL: &str = "all templates";

impl FlowsReport {
    /// Template, side and figures. If there are several templates, their sum comes last ([`ALL`]).
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

/// Such as `compressed (31 %)`.
fn compressed(octets: u64, of: u64) -> String {
    let share = octets.saturating_mul(100).checked_div(of);
    share.map_or("compressed".to_owned(), |share| format!("compressed ({share} %)"))
}

/// Figures with their counts: `always`, those by name, and those of `rest` that are not 0.
fn listed(
    always: &[(&str, u64)],
    named: &[(&str, &BTreeMap<String, u64>)],
    rest: &[(&str, u64)],
) -> Vec<(String, u64)> {
    let plain = |(what, n): &(&str, u64)| ((*what).to_owned(), *n);
    let named = named.iter().flat_map(|(what, counts)| {
        counts.iter().map(move |(why, n)| (format!("{what}: {why}"), *n))
    });
    let rest = rest.iter().filter(|(_, n)| *n > 0).map(plain);
    always.iter().map(plain).chain(named).chain(rest).collect()
}

impl RoleReport {
    /// Groups of counts by reason, each with the group's name.
    pub fn reasons(&self) -> [(&'static str, &BTreeMap<String, u64>); 5] {
        [
            ("failed", &self.failed),
            ("not as in the flow program", &self.protocol_errors),
            ("not begun", &self.not_begun),
            ("HTTP", &self.http),
            ("counters of the program", &self.counters),
        ]
    }

    /// Whether a request was not sent or has no answer.
    pub fn lacks_requests(&self) -> bool {
        self.requests.as_ref().is_some_and(|of| of.sent < of.asked || of.answered < of.asked)
    }

    /// TLS problems, each with a count.
    pub fn tls(&self) -> Vec<(String, u64)> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let ciphers = tls.ciphers.iter().map(|(cipher, n)| (format!("handshakes by {cipher}"), *n));
        let failed = tls.failed.iter().map(|(why, n)| (format!("failed: {why}"), *n));
        let others = [
            ("resumed", tls.resumed),
            ("with early data", tls.early_offered),
            ("with early data accepted", tls.early_accepted),
            ("octets of early data accepted", tls.early_octets_accepted),
            ("with early data refused", tls.early_refused),
            ("octets of early data refused", tls.early_octets_refused),
            ("closed without close_notify", tls.truncated),
        ];
        let others =
            others.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| (what.to_owned(), n));
        ciphers.chain(others).chain(failed).collect()
    }

    /// Figures of HTTP/2, each with a count.
    pub fn http2(&self) -> Vec<(String, u64)> {
        let Some(http2) = &self.http2 else { return Vec::new() };
        let sent = compressed(http2.compressed_octets_sent, http2.head_octets_sent);
        let received = compressed(http2.compressed_octets_received, http2.head_octets_received);
        let always = [
            ("connections", http2.connections),
            ("streams", http2.streams),
            ("octets of fields sent", http2.head_octets_sent),
            (sent.as_str(), http2.compressed_octets_sent),
            ("octets of fields received", http2.head_octets_received),
            (received.as_str(), http2.compressed_octets_received),
        ];
        let named = [
            ("resets sent", &http2.resets_sent),
            ("resets received", &http2.resets_received),
            ("GOAWAY received", &http2.goaways_received),
            ("violations", &http2.violations),
        ];
        let rest = [
            ("connections of HTTP/1.1", http2.fallbacks),
            ("left out by GOAWAY", http2.left_out),
            ("requests sent again", http2.repeated),
            ("ignored frames", http2.ignored),
        ];
        listed(&always, &named, &rest)
    }

    /// Figures of HTTP/3, each with a count.
    pub fn http3(&self) -> Vec<(String, u64)> {
        let Some(http3) = &self.http3 else { return Vec::new() };
        let sent = compressed(http3.compressed_octets_sent, http3.head_octets_sent);
        let received = compressed(http3.compressed_octets_received, http3.head_octets_received);
        let always = [
            ("connections", http3.connections),
            ("streams", http3.streams),
            ("octets of fields sent", http3.head_octets_sent),
            (sent.as_str(), http3.compressed_octets_sent),
            ("octets of fields received", http3.head_octets_received),
            (received.as_str(), http3.compressed_octets_received),
            ("packets sent", http3.packets_sent),
            ("lost", http3.packets_lost),
        ];
        let named = [
            ("resets sent", &http3.resets_sent),
            ("resets received", &http3.resets_received),
            ("violations", &http3.violations),
            ("not moved", &http3.not_moved),
        ];
        let rest = [
            ("left out by GOAWAY", http3.left_out),
            ("GOAWAY received", http3.goaways_received),
            ("ignored frames and streams", http3.ignored),
            ("reductions of the congestion window", http3.congestion_events),
            ("Retry packets", http3.retries),
            ("Version Negotiation packets", http3.version_negotiations),
            ("connections with early data", http3.early_accepted),
            ("connections whose early data was refused", http3.early_refused),
            ("stray datagrams", http3.strays),
            ("migrations", http3.migrations),
            ("rebindings by a NAT", http3.rebindings),
            ("failed path validations", http3.paths_failed),
        ];
        listed(&always, &named, &rest)
    }

    /// Flows started per second at full load. If there was no full load, over the whole run.
    pub fn achieved_cps(&self) -> f64 {
        self.steady.as_ref().map_or(self.cps, |steady| steady.attempted_cps)
    }

    /// Number of retransmitted segments.
    pub fn retransmits(&self) -> u64 {
        let kinds = ["retransmit_rto", "retransmit_fast", "retransmit_sack", "retransmit_syn"];
        kinds.iter().filter_map(|kind| self.tcp.get(*kind)).sum()
    }

    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Number of flows that were due and not started.
    pub fn missed(&self) -> u64 {
        self.not_begun.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_show_how_far_fields_were_compressed_and_what_became_of_early_data() {
        let role = RoleReport {
            tls: Some(TlsReport { early_offered: 3, early_refused: 1, ..TlsReport::default() }),
            http2: Some(Http2Report {
                head_octets_sent: 300,
                compressed_octets_sent: 100,
                ..Http2Report::default()
            }),
            ..RoleReport::default()
        };
        let has = |all: Vec<(String, u64)>, what: &str, n| all.contains(&(what.to_owned(), n));
        assert!(has(role.http2(), "compressed (33 %)", 100), "{:?}", role.http2());
        assert!(has(role.http2(), "compressed", 0), "nothing was received");
        assert!(has(role.tls(), "with early data", 3), "{:?}", role.tls());
        assert!(has(role.tls(), "with early data refused", 1), "{:?}", role.tls());
    }
}
