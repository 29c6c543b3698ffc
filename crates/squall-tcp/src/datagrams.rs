//! UDP flows, and ICMP errors about TCP and UDP flows.

use squall_units::{Nanos, be16, be32};

use crate::{
    Application, Event, Reason,
    arrives::MIN_MSS,
    core::Found,
    extra::Recovery,
    flow::{Bits, State},
    packet::{
        Addresses, ICMP, ICMP6, IPV4, IPV6, Ip, Key, Reject, TCP, TCP_HEADER, UDP, UDP_HEADER,
    },
    seq::{le, lt},
    stack::Stack,
};

impl<A: Application> Stack<A> {
    pub(crate) fn begin_udp(&mut self, now: Nanos, flow: u32) {
        self.core.counters(flow).established += 1;
        self.restart_idle(now, flow);
        self.notify(now, flow, Event::Established);
    }

    /// Receives the datagram in `ip`, whose payload ends with the datagram.
    pub(crate) fn receive_udp(&mut self, now: Nanos, packet: &[u8], ip: &Ip<'_>) {
        let key = Key {
            addresses: ip.addresses,
            local_port: be16(ip.payload, 2),
            remote_port: be16(ip.payload, 0),
            udp: true,
        };
        let hash = self.core.hash(&key);
        let flow = match self.core.find(hash, &key) {
            Some(Found::Flow(flow)) => flow,
            // UDP has no TIME-WAIT: the entry belongs to a TCP flow.
            Some(Found::Wait(_)) | None => {
                if !self.app.begins(&key.tuple(), &ip.payload[UDP_HEADER..]) {
                    self.core.strays.late += 1;
                    return;
                }
                if self.core.is_full() && self.app.listens(&key.tuple()) {
                    self.core.strays.accept_full += 1;
                    return;
                }
                let Some((class, state)) = self.app.accept(now, &key.tuple()) else {
                    if self.app.ended(&key.tuple()) {
                        self.core.strays.late += 1;
                        return;
                    }
                    self.core.strays.not_accepted += 1;
                    return self.core.answer_unreachable(&key, packet);
                };
                let Some(flow) = self.core.allocate(class, &key, hash, State::Udp, state) else {
                    self.core.strays.accept_full += 1;
                    return;
                };
                self.core.counters(flow).accepts += 1;
                self.core.flows[flow].bits.set(Bits::PASSIVE);
                self.begin_udp(now, flow);
                flow
            }
        };
        self.count_in(flow, ip);
        let payload = &ip.payload[UDP_HEADER..];
        self.restart_idle(now, flow);
        if self.core.flows[flow].bits.has(Bits::ABORT) {
            self.core.counters(flow).unread += payload.len() as u64;
        } else {
            self.core.counters(flow).delivered += payload.len() as u64;
            self.notify(now, flow, Event::Received(payload));
        }
        self.settle(now, flow);
    }

    pub(crate) fn receive_icmp(
        &mut self,
        now: Nanos,
        ip: &Ip<'_>,
        verify: bool,
    ) -> Result<(), Reject> {
        let message = ip.payload;
        let header = message.first_chunk::<8>().ok_or(Reject::Malformed)?;
        if verify {
            let good = match ip.protocol {
                ICMP => squall_wire::checksum::fold(squall_wire::checksum::sum(message)) == 0xffff,
                _ => ip.checksum_is_good(),
            };
            if !good {
                return Err(Reject::IcmpChecksum);
            }
        }
        // Codes of RFC 792 and RFC 4443 §3.1: 4 is "fragmentation needed", 2 and 3 are protocol and
        // port unreachable; 0, 1 and 5 are transient (RFC 1122 §3.2.2.1).
        let error = match (ip.protocol, header[0], header[1]) {
            (ICMP, 3, 4) => Error::TooBig(u32::from(be16(header, 6)), IPV4),
            (ICMP, 3, 2 | 3) => Error::Port,
            (ICMP, 3, 0 | 1 | 5) => Error::Soft,
            (ICMP, 3, _) => Error::Way,
            (ICMP6, 2, _) => Error::TooBig(be32(header, 4), IPV6),
            (ICMP6, 1, 4) => Error::Port,
            (ICMP6, 1, 0 | 3) => Error::Soft,
            (ICMP6, 1, _) => Error::Way,
            _ => return Err(Reject::Protocol),
        };
        let Some((key, seq)) = quoted(&message[8..]) else {
            self.core.strays.icmp_unknown += 1;
            return Ok(());
        };
        let hash = self.core.hash(&key);
        let flow = match self.core.find(hash, &key) {
            Some(Found::Flow(flow)) => flow,
            // A flow in TIME-WAIT has no outstanding data that the error could be about.
            Some(Found::Wait(place)) => {
                let class = usize::from(self.core.wait(place).class);
                let counters = &mut self.core.classes[class].counters;
                (counters.icmp_in, counters.unexpected) =
                    (counters.icmp_in + 1, counters.unexpected + 1);
                return Ok(());
            }
            None => {
                self.core.strays.icmp_unknown += 1;
                return Ok(());
            }
        };
        self.core.counters(flow).icmp_in += 1;
        let f = &self.core.flows[flow];
        let state = f.tcp_state();
        // RFC 5927 §4.1: the quoted sequence number must be outstanding; otherwise the error is
        // stale or forged.
        let current = key.udp || le(f.snd_una, seq) && lt(seq, f.snd_nxt);
        if !current {
            self.core.counters(flow).unexpected += 1;
            return Ok(());
        }
        match (error, state) {
            (Error::TooBig(mtu, ip_header), _) if !key.udp => self.lower_mss(flow, mtu, ip_header),
            (Error::Port, State::SynSent | State::Udp) => self.finish(now, flow, Reason::Refused),
            (Error::Way, State::SynSent | State::Udp) | (Error::Soft, State::Udp) => {
                self.finish(now, flow, Reason::Unreachable)
            }
            // Soft errors do not end a connection (RFC 9293 §3.9.2.2, MUST-56). For a synchronized
            // connection all errors are soft (RFC 5927 §5.2): otherwise a forged error could end
            // it.
            _ => (),
        }
        self.settle(now, flow);
        Ok(())
    }

    /// Path MTU discovery (RFC 1191, 8201): retransmits shorter segments.
    fn lower_mss(&mut self, flow: u32, mtu: u32, ip_header: usize) {
        // Routers older than RFC 1191 send a next-hop MTU of 0; 68 is the smallest MTU of IPv4 (RFC
        // 791). Every host accepts 576 octets.
        let mtu = if mtu < 68 { 576 } else { mtu };
        let mss = (mtu.saturating_sub((ip_header + TCP_HEADER) as u32))
            .clamp(MIN_MSS.into(), u16::MAX.into()) as u16;
        let f = &mut self.core.flows[flow];
        if mss >= f.mss {
            return;
        }
        f.mss = mss;
        let (una, nxt, connecting) =
            (f.snd_una, f.snd_nxt, matches!(f.tcp_state(), State::SynSent | State::SynReceived));
        f.bits.set(Bits::HEAD);
        self.core.counters(flow).mss_lowered += 1;
        if !connecting {
            let extra = self.core.make_extra(flow);
            // The drop was not a sign of congestion, so the window does not shrink (RFC 1191 §6.4).
            if extra.recovery != Recovery::Loss {
                (extra.recovery, extra.recover, extra.high_rxt) = (Recovery::Loss, nxt, una);
                if let Some(bbr) = &mut extra.bbr {
                    bbr.send_all_again();
                }
            }
        }
        self.core.enqueue(flow);
    }
}

enum Error {
    /// Path MTU, and the length of the IP header.
    TooBig(u32, usize),
    Port,
    Way,
    /// Network or host unreachable: often transient.
    Soft,
}

/// The flow whose packet an ICMP error quotes, with the sequence number if it is TCP.
fn quoted(packet: &[u8]) -> Option<(Key, u32)> {
    let version = packet.first()? >> 4;
    let (addresses, protocol, rest) = match version {
        4 => {
            let header = packet.first_chunk::<IPV4>()?;
            let rest = packet.get(usize::from(header[0] & 15) * 4..)?;
            (Addresses::V4 { local: be32(header, 12), remote: be32(header, 16) }, header[9], rest)
        }
        6 => {
            let header = packet.first_chunk::<IPV6>()?;
            let address =
                |at: usize| u128::from_be_bytes(header[at..at + 16].try_into().expect("16 octets"));
            (Addresses::V6 { local: address(8), remote: address(24) }, header[6], &packet[IPV6..])
        }
        _ => return None,
    };
    let transport = rest.first_chunk::<8>()?;
    if !matches!(protocol, TCP | UDP) {
        return None;
    }
    let key = Key {
        addresses,
        local_port: be16(transport, 0),
        remote_port: be16(transport, 2),
        udp: protocol == UDP,
    };
    Some((key, be32(transport, 4)))
}
