//! Counters per class of flows, and for packets that belong to no flow.

use crate::Reason;

/// Defines a struct of counters that can be listed and added.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// All counters with their names.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// Adds another worker's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Counters of a class of flows. TRex's ASTF names are in parentheses.
    Counters {
        /// Flows opened by this side (tcps_connattempt; udps_connects).
        attempts,
        /// Flows opened by peers (tcps_accepts; udps_accepts).
        accepts,
        /// Completed handshakes (tcps_connects), and UDP flows.
        established,
        /// Flows that ended with [`Reason::Closed`] (tcps_closed; udps_closed).
        closed,
        aborted,
        /// Flows that the peer reset (tcps_drops).
        reset,
        refused,
        unreachable,
        /// Flows without an answer to the SYN or SYN-ACK (tcps_conndrops).
        connect_timeout,
        /// Flows without an answer to retransmissions (tcps_timeoutdrop).
        timeout,
        /// Flows without an answer to keepalive probes (tcps_keepdrops).
        keepalive_timeout,
        idle,
        /// Number of open flows, without those in TIME-WAIT.
        active,
        /// Flows in TIME-WAIT.
        time_wait,
        /// TIME-WAITs cut short by a new SYN (RFC 6191).
        time_wait_reused,
        /// TCP segments and datagrams received; a GSO packet counts once (tcps_rcvtotal;
        /// udps_rcvpkt).
        segments_in,
        /// TCP segments and datagrams sent (tcps_sndtotal; udps_sndpkt).
        segments_out,
        /// Octets of IP packets received.
        octets_in,
        octets_out,
        /// Payload delivered to applications, octets (tcps_rcvbyte; udps_rcvbyte).
        delivered,
        /// Payload sent for the first time, octets (tcps_sndbyte; udps_sndbyte).
        sent,
        /// Payload acknowledged, octets (tcps_rcvackbyte).
        acked,
        /// Segments retransmitted after a time-out (in TRex, tcps_sndrexmitpack counts all
        /// retransmissions).
        retransmit_rto,
        /// Segments retransmitted after three duplicate acknowledgments, or a partial one (RFC
        /// 6582).
        retransmit_fast,
        /// Segments retransmitted because they were lost according to selective acknowledgments
        /// (RFC 6675).
        retransmit_sack,
        retransmit_syn,
        /// Payload retransmitted, octets (tcps_sndrexmitbyte).
        retransmit_octets,
        /// Retransmission time-outs (tcps_rexmttimeo).
        rto_timeouts,
        /// Zero-window probes sent (tcps_sndprobe).
        window_probes,
        /// Keepalive probes sent (tcps_keepprobe).
        keepalive_probes,
        /// Duplicate acknowledgments received (tcps_rcvdupack).
        duplicate_acks,
        /// Acknowledgments of data that was never sent (tcps_rcvacktoomuch).
        acks_too_far,
        /// Segments with only old octets (tcps_rcvduppack).
        duplicate_segments,
        /// Segments ahead of RCV.NXT (tcps_rcvoopack).
        out_of_order,
        out_of_order_octets,
        /// Out-of-order octets dropped for lack of buffer (tcps_reasshwm and similar); the peer
        /// retransmits them.
        reassembly_drops,
        /// Segments outside of the window (tcps_rcvpackafterwin).
        out_of_window,
        /// Segments that are invalid in the flow's state.
        unexpected,
        /// Segments with old timestamps (tcps_pawsdrop).
        paws_drops,
        /// Times that the peer's window became zero.
        zero_windows_in,
        /// Times that the local window became zero.
        zero_windows_out,
        resets_in,
        resets_out,
        /// Resets not at RCV.NXT (RFC 5961 §3).
        resets_ignored,
        /// Challenge ACKs sent (RFC 5961).
        challenge_acks,
        /// Answers suppressed by the limit on challenge ACKs.
        acks_limited,
        acks_delayed,
        /// Pure acknowledgments sent (tcps_sndacks).
        acks_out,
        /// Reductions of the congestion window for ECN.
        ecn_reductions,
        /// Congestion marks received.
        ecn_marks,
        /// ICMP errors about a flow.
        icmp_in,
        /// Reductions of the MSS by path MTU discovery.
        mss_lowered,
        /// Payload received after the application had closed or ended the flow; octets.
        unread,
    }
}

counters! {
    /// Counters for packets that belong to no flow, and for the stack as a whole.
    UnmatchedCounters {
        packets_in,
        octets_in,
        /// Packets that are neither IPv4 nor IPv6.
        not_ip,
        /// Packets that are shorter than their headers indicate or have impossible headers.
        malformed,
        bad_ip_checksum,
        bad_tcp_checksum,
        bad_udp_checksum,
        bad_icmp_checksum,
        fragments,
        /// Packets that are neither TCP nor UDP nor an ICMP error.
        other_protocol,
        /// TCP segments other than SYNs that belong to no flow.
        unknown_flow,
        /// SYNs and datagrams that the application refused.
        not_accepted,
        /// Datagrams for flows that this side has ended.
        late,
        /// Flows that this side could not open because the table was full.
        table_full,
        /// Flows opened by peers and dropped because the table was full.
        accept_full,
        /// ICMP errors about unknown flows.
        icmp_unknown,
        resets_out,
        icmp_out,
        /// Answers without a flow, and datagrams to former or new ends of flows that move, that were
        /// dropped because too many were pending.
        answers_dropped,
        packets_out,
        octets_out,
    }
}

impl Counters {
    /// Number of flows that ended for `reason`.
    pub fn ended(&self, reason: Reason) -> u64 {
        match reason {
            Reason::Closed => self.closed,
            Reason::Aborted => self.aborted,
            Reason::Reset => self.reset,
            Reason::Refused => self.refused,
            Reason::Unreachable => self.unreachable,
            Reason::ConnectTimeout => self.connect_timeout,
            Reason::Timeout => self.timeout,
            Reason::KeepaliveTimeout => self.keepalive_timeout,
            Reason::Idle => self.idle,
        }
    }

    #[inline]
    pub(crate) fn end(&mut self, reason: Reason) {
        *match reason {
            Reason::Closed => &mut self.closed,
            Reason::Aborted => &mut self.aborted,
            Reason::Reset => &mut self.reset,
            Reason::Refused => &mut self.refused,
            Reason::Unreachable => &mut self.unreachable,
            Reason::ConnectTimeout => &mut self.connect_timeout,
            Reason::Timeout => &mut self.timeout,
            Reason::KeepaliveTimeout => &mut self.keepalive_timeout,
            Reason::Idle => &mut self.idle,
        } += 1;
    }

    /// Retransmitted segments of all kinds (tcps_sndrexmitpack).
    pub fn retransmits(&self) -> u64 {
        self.retransmit_rto + self.retransmit_fast + self.retransmit_sack + self.retransmit_syn
    }
}
