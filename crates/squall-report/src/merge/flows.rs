//! Merges the flows of a run's parts.

use super::{Merge, by_key, common, merge, sums};
use crate::report::flows::{
    ConversationsReport, ExhaustedReport, FlowsReport, Http2Report, Http3Report, RequestsReport,
    RoleReport, RolesReport, SteadyReport, TemplateReport, TlsReport,
};

sums! {
    RolesReport { client, server }
    TemplateReport { roles }
    ExhaustedReport { addresses, flows }
    RequestsReport { asked, sent, answered }
    TlsReport {
        handshakes, resumed, handshakes_per_second, handshake_ns, early_offered, early_accepted,
        early_octets_accepted, early_refused, early_octets_refused, failed, truncated, ciphers
    }
    Http2Report {
        connections, fallbacks, streams, heads_sent, head_octets_sent, compressed_octets_sent,
        heads_received, head_octets_received, compressed_octets_received, resets_sent,
        resets_received, left_out, repeated, goaways_received, violations, ignored
    }
}

sums! {
    Http3Report {
        connections, streams, heads_sent, head_octets_sent, compressed_octets_sent, heads_received,
        head_octets_received, compressed_octets_received, resets_sent, resets_received, left_out,
        goaways_received, violations, ignored, packets_sent, packets_lost, congestion_events,
        retries, version_negotiations, early_accepted, early_refused, strays, migrations,
        rebindings, paths_failed, not_moved
    }
}

impl Merge for FlowsReport {
    fn merge(&mut self, other: &Self) {
        self.duration_s = self.duration_s.max(other.duration_s);
        self.arrivals_s = self.arrivals_s.max(other.arrivals_s);
        by_key(&mut self.templates, &other.templates, |template| template.name.clone());
        merge!(self, other; total, conversations);
        self.links.extend(other.links.iter().cloned());
        by_key(&mut self.exhausted, &other.exhausted, |pool| pool.pool.clone());
    }
}

/// The peak of open flows is the sum of the peaks of the parts. These may have occurred at
/// different times, so the sum is an upper bound.
impl Merge for RoleReport {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; asked, attempted, established, completed, failed, protocol_errors,
            requests, counters, not_begun, active, peak_active, cps, asked_cps, steady, setup_ns,
            first_byte_ns, first_byte_from_start_ns, transaction_ns, duration_ns,
            duration_from_due_ns, received_octets, sent_octets, goodput_bps, http, tcp, tls, http2,
            http3);
        // Reports do not contain the time of the busiest second, so those of the parts cannot be
        // added.
        self.busiest_second = None;
    }
}

/// All parts were at full load at the same time for at most the shortest of their full-load times.
impl Merge for SteadyReport {
    fn merge(&mut self, other: &Self) {
        self.duration_s = self.duration_s.min(other.duration_s);
        merge!(self, other; attempted_cps, completed_cps, goodput_bps);
    }
}

/// All parts read the same capture, and each plays other conversations.
impl Merge for ConversationsReport {
    fn merge(&mut self, other: &Self) {
        common(&mut self.loops, other.loops.as_ref());
        self.failed_first.extend(other.failed_first.iter().cloned());
        self.octets_as_captured =
            self.octets_as_captured.zip(other.octets_as_captured).map(|(one, other)| one && other);
    }
}
