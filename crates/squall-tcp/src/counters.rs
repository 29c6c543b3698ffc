//! What is counted: per class of flows, and for packets that belong to no flow.

use crate::Reason;

/// A struct of counters that can be listed and added up.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// Each with its name.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// Adds those of another worker.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Of the flows of a class. TRex's ASTF names in brackets.
    Counters {
        /// Flows that we began (tcps_connattempt; udps_connects).
        attempts,
        /// Flows that others began (tcps_accepts; udps_accepts).
        accepts,
        /// Handshakes done (tcps_connects), UDP flows begun.
        established,
        /// [`Reason::Closed`] (tcps_closed; udps_closed).
        closed,
        aborted,
        /// By the peer (tcps_drops).
        reset,
        refused,
        unreachable,
        /// (tcps_conndrops).
        connect_timeout,
        /// (tcps_timeoutdrop).
        timeout,
        /// (tcps_keepdrops).
        keepalive_timeout,
        idle,
        /// Flows now, without those in TIME-WAIT.
        active,
        /// In TIME-WAIT now.
        time_wait,
        /// TIME-WAITs cut short by a new SYN (RFC 6191).
        time_wait_reused,
        /// TCP segments and datagrams received, GSO packets counted once (tcps_rcvtotal;
        /// udps_rcvpkt).
        segments_in,
        /// Sent (tcps_sndtotal; udps_sndpkt).
        segments_out,
        /// Octets of IP packets received.
        octets_in,
        octets_out,
        /// Payload given to applications, octets (tcps_rcvbyte; udps_rcvbyte).
        delivered,
        /// Payload sent for the first time, octets (tcps_sndbyte; udps_sndbyte).
        sent,
        /// Payload that was acknowledged, octets (tcps_rcvackbyte).
        acked,
        /// Segments sent again after a time-out (tcps_sndrexmitpack, with all the other kinds).
        retransmit_rto,
        /// After three duplicate acknowledgements, or a partial one (RFC 6582).
        retransmit_fast,
        /// Named as lost by selective acknowledgements (RFC 6675).
        retransmit_sack,
        retransmit_syn,
        /// Payload sent again, octets (tcps_sndrexmitbyte).
        retransmit_octets,
        /// Retransmission time-outs (tcps_rexmttimeo).
        rto_timeouts,
        /// Zero-window probes sent (tcps_sndprobe).
        window_probes,
        /// Keepalive probes sent (tcps_keepprobe).
        keepalive_probes,
        /// Duplicate acknowledgements received (tcps_rcvdupack).
        duplicate_acks,
        /// Acknowledgements of what was never sent (tcps_rcvacktoomuch).
        acks_too_far,
        /// Segments with nothing but old octets (tcps_rcvduppack).
        duplicate_segments,
        /// Segments ahead of what is next (tcps_rcvoopack).
        out_of_order,
        out_of_order_octets,
        /// Octets ahead that found no room (tcps_reasshwm and the like), to be sent again by the
        /// peer.
        reassembly_drops,
        /// Segments outside of the window (tcps_rcvpackafterwin).
        out_of_window,
        /// Segments that the state has no use for.
        unexpected,
        /// Segments with old timestamps (tcps_pawsdrop).
        paws_drops,
        /// Peer's window became zero.
        zero_windows_in,
        /// Ours did.
        zero_windows_out,
        resets_in,
        resets_out,
        /// Resets that were not exact (RFC 5961 §3).
        resets_ignored,
        /// (RFC 5961).
        challenge_acks,
        /// Answers held back by the limit on them.
        acks_limited,
        acks_delayed,
        /// Pure acknowledgements sent (tcps_sndacks).
        acks_out,
        /// Congestion windows reduced for ECN.
        ecn_reductions,
        /// Congestion marks received.
        ecn_marks,
        /// ICMP errors that concerned a flow.
        icmp_in,
        /// Packets of a flow that went down by path MTU discovery.
        mss_lowered,
        /// Payload that came for an application that was closed or gone; octets.
        unread,
    }
}

counters! {
    /// Of packets that belong to no flow, and of the stack as a whole.
    Strays {
        packets_in,
        octets_in,
        /// Neither IPv4 nor IPv6.
        not_ip,
        /// Shorter than their headers say, or headers that cannot be.
        malformed,
        bad_ip_checksum,
        bad_tcp_checksum,
        bad_udp_checksum,
        bad_icmp_checksum,
        fragments,
        /// Neither TCP nor UDP nor an ICMP error.
        other_protocol,
        /// TCP segments to no flow, a SYN excepted.
        unknown_flow,
        /// SYNs and datagrams that the application did not take.
        not_accepted,
        /// Datagrams to flows that we have ended.
        late,
        /// Flows of ours that found no room.
        table_full,
        /// ... and flows of peers.
        accept_full,
        /// ICMP errors about no flow of ours.
        icmp_unknown,
        resets_out,
        icmp_out,
        /// Answers to nobody's packets held back: too many wait.
        answers_dropped,
        packets_out,
        octets_out,
    }
}

impl Counters {
    /// Flows that ended so.
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

    /// Segments sent again, of all kinds (tcps_sndrexmitpack).
    pub fn retransmits(&self) -> u64 {
        self.retransmit_rto + self.retransmit_fast + self.retransmit_sack + self.retransmit_syn
    }
}
