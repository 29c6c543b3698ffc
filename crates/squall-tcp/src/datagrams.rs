//! UDP flows, and ICMP errors about TCP and UDP flows.

use squall_units::{Nanos, be16, be32};
use squall_wire::Ipv6Octets;

use crate::{
    Application, Event, FlowId, Reason,
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
                if let Some(flow) = self.flow_of_moved(&key, &ip.payload[UDP_HEADER..]) {
                    self.count_datagram(flow, ip);
                    return self.deliver_moved(now, flow, key, ip);
                }
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
        self.count_datagram(flow, ip);
        self.deliver_datagram(now, flow, ip);
        // The flow is an earlier one of the address to which another flow's peer has moved.
        if let Some(other) = self.core.passed_on.take() {
            match self.with_local_end(&key, other) {
                Some(other) => self.deliver_moved(now, other, key, ip),
                None => self.core.strays.late += 1,
            }
        }
    }

    /// The open flow with the same local end to which the application assigns a datagram of an
    /// unknown one.
    fn flow_of_moved(&self, key: &Key, datagram: &[u8]) -> Option<u32> {
        self.with_local_end(key, self.app.moved(&key.tuple(), datagram)?)
    }

    /// The UDP flow, if it is open and has the local end of `key`.
    fn with_local_end(&self, key: &Key, FlowId(number): FlowId) -> Option<u32> {
        // Flows over UDP are never at rest.
        let flow = self.core.numbers.record(number)?;
        let f = &self.core.flows[flow];
        let open = f.tcp_state() == State::Udp && f.local_port == key.local_port;
        let local = |key: &Key| key.addresses.local();
        (open && local(&self.core.key(flow)) == local(key)).then_some(flow)
    }

    /// Passes a datagram to the flow of a peer that has moved to the ends `key`.
    fn deliver_moved(&mut self, now: Nanos, flow: u32, key: Key, ip: &Ip<'_>) {
        self.core.moved = Some(key);
        self.deliver_datagram(now, flow, ip);
        (self.core.moved, self.core.passed_on) = (None, None);
    }

    fn count_datagram(&mut self, flow: u32, ip: &Ip<'_>) {
        self.count_in(flow, ip);
        let len = (ip.payload.len() - UDP_HEADER) as u64;
        let unread = self.core.flows[flow].bits.has(Bits::ABORT);
        let counters = self.core.counters(flow);
        match unread {
            true => counters.unread += len,
            false => counters.delivered += len,
        }
    }

    /// Passes a datagram to its flow.
    fn deliver_datagram(&mut self, now: Nanos, flow: u32, ip: &Ip<'_>) {
        self.restart_idle(now, flow);
        if !self.core.flows[flow].bits.has(Bits::ABORT) {
            self.notify(now, flow, Event::Received(&ip.payload[UDP_HEADER..]));
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
                |at: usize| Ipv6Octets::read(header[at..].first_chunk().expect("16 octets"));
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use squall_units::Cut;

    use super::*;
    use crate::{
        ClassId, ConnectError, FlowKind, Output, Piece, Settings, Socket, Tunables, Tuple,
    };

    const WORDS: [&[u8]; 2] = [b"stay", b"follow"];

    /// Answers each datagram where it came from. Datagrams from unknown ends belong to its flow.
    #[derive(Default)]
    struct App {
        answers: bool,
        flow: Option<FlowId>,
        /// The flow to which all other flows' datagrams are passed on.
        owner: Option<FlowId>,
        /// Ports of senders, and datagrams.
        received: Vec<(u16, Vec<u8>)>,
        /// Whether a flow settles after all datagrams that have arrived; whether it has to, and how
        /// often it did.
        gathers: bool,
        unsettled: bool,
        settled: u32,
    }

    impl Application for App {
        type State = ();

        fn event(&mut self, socket: &mut Socket<'_, ()>, event: Event<'_>) {
            if event == Event::Settle {
                (self.unsettled, self.settled) = (false, self.settled + 1);
                socket.send(Piece { message: 0, nth: 0, len: 4 }).expect("room");
            }
            let Event::Received(datagram) = event else { return };
            if self.gathers && !std::mem::replace(&mut self.unsettled, true) {
                socket.settle_later();
            }
            if let Some(owner) = self.owner.filter(|owner| *owner != socket.id()) {
                return socket.pass_on(owner);
            }
            let sender = socket.sender();
            self.flow = Some(socket.id());
            self.received.push((sender.1, datagram.to_vec()));
            if datagram == WORDS[1] {
                socket.follow(sender).expect("the same IP version");
            }
            if self.answers {
                assert!(socket.send_to(sender, b"answer") && !socket.send_to(sender, &[0; 9000]));
            }
        }

        fn copy(&self, _: &(), _: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
            let from = offset as usize;
            out.copy_from_slice(&WORDS[piece.message as usize][from..from + out.len()]);
        }

        fn accept(&mut self, _: Nanos, _: &Tuple) -> Option<(ClassId, ())> {
            Some((ClassId(0), ()))
        }

        fn moved(&self, _: &Tuple, _: &[u8]) -> Option<FlowId> {
            self.flow
        }
    }

    #[derive(Default)]
    struct Wire(Vec<Vec<u8>>);

    impl Output for Wire {
        fn packet(&mut self, _: ClassId, _: &Tuple, len: usize, _: Cut) -> Option<&mut [u8]> {
            self.0.push(vec![0; len]);
            self.0.last_mut().map(|packet| &mut packet[..])
        }
    }

    const NOW: Nanos = Nanos(1_000_000_000);

    fn carry(from: &mut Stack<App>, to: &mut Stack<App>) {
        let mut wire = Wire::default();
        from.transmit(NOW, &mut wire);
        assert!(!from.has_output());
        wire.0.iter().for_each(|packet| to.receive(NOW, packet));
    }

    fn tuple(v6: bool, local_port: u16) -> Tuple {
        let [local, remote] = [1, 2].map(|host| match v6 {
            true => IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, host, 0, 0, 0, 1)),
            false => IpAddr::from(Ipv4Addr::new(10, 0, 0, host as u8)),
        });
        Tuple { kind: FlowKind::Udp, local, local_port, remote, remote_port: 443 }
    }

    fn stack(answers: bool) -> Stack<App> {
        let mut stack = Stack::new(Settings::default(), App { answers, ..App::default() });
        stack.add_class(Tunables::default()).expect("right tunables");
        stack
    }

    fn send(client: &mut Stack<App>, flow: FlowId, word: u32) {
        let piece = Piece { message: word, nth: 0, len: WORDS[word as usize].len() as u32 };
        client.with(NOW, flow, |_, socket| socket.send(piece).expect("room"));
    }

    #[test]
    fn a_peer_that_moves_takes_over_the_end_of_an_earlier_flow() {
        for v6 in [false, true] {
            let (mut client, mut server) = (stack(false), stack(false));
            let [(lost, earlier), (flow, owner)] = [5000, 5001].map(|port| {
                let flow = client.connect(NOW, ClassId(0), tuple(v6, port), ());
                let flow = flow.expect("a free end");
                send(&mut client, flow, 0);
                carry(&mut client, &mut server);
                (flow, server.app_mut().flow.take().expect("a flow of its own"))
            });
            client.with(NOW, lost, |_, socket| socket.abort());
            client.rebind(flow, &tuple(v6, 5000)).expect("free again");
            server.app_mut().owner = Some(owner);
            let ends = |server: &mut Stack<App>| {
                [earlier, owner].map(|flow| server.with(NOW, flow, |_, socket| socket.tuple()))
            };
            let before = ends(&mut server);
            send(&mut client, flow, 1);
            carry(&mut client, &mut server);
            assert_eq!(server.app().received.last(), Some(&(5000, WORDS[1].to_vec())));
            assert_eq!(server.app().flow, Some(owner));
            let [a, b] = before;
            assert_eq!((ends(&mut server), server.active()), ([b, a], 2));
            assert_eq!(b.expect("open").remote_port, 5001);
            let counters = server.counters(ClassId(0));
            let octets = 2 * WORDS[0].len() + WORDS[1].len();
            assert_eq!((counters.segments_in, counters.delivered), (3, octets as u64));
            // The end is the flow's own now, and the other's leads to the earlier flow.
            server.app_mut().owner = None;
            for (port, expected) in [(5000, owner), (5001, earlier)] {
                client.rebind(flow, &tuple(v6, port)).ok();
                send(&mut client, flow, 0);
                carry(&mut client, &mut server);
                assert_eq!(server.app().flow, Some(expected), "{port}");
            }
            assert_eq!(server.active(), 2);
        }
    }

    #[test]
    fn a_flow_settles_once_after_all_packets_that_have_arrived() {
        let (mut client, mut server) = (stack(false), stack(false));
        server.app_mut().gathers = true;
        let flow = client.connect(NOW, ClassId(0), tuple(false, 5000), ()).expect("a free end");
        for round in 1..=2 {
            for _ in 0..3 {
                send(&mut client, flow, 0);
            }
            carry(&mut client, &mut server);
            let app = server.app();
            assert_eq!((app.received.len(), app.settled), (3 * round, round as u32 - 1));
            assert!(server.has_output(), "the flow has to settle");
            carry(&mut server, &mut client);
            let after = (server.app().settled as usize, client.app().received.len());
            assert_eq!(after, (round, round));
        }
        // One that has ended meanwhile does not.
        send(&mut client, flow, 0);
        carry(&mut client, &mut server);
        let ended = server.app().flow.expect("it has come");
        server.with(NOW, ended, |_, socket| socket.abort());
        carry(&mut server, &mut client);
        assert_eq!(server.app().settled, 2);
    }

    #[test]
    fn a_flow_keeps_its_state_when_an_end_moves() {
        for v6 in [false, true] {
            let [mut client, mut server] = [false, true].map(stack);
            let connect = |client: &mut Stack<App>, port| {
                client.connect(NOW, ClassId(0), tuple(v6, port), ())
            };
            let flow = connect(&mut client, 5000).expect("a free end");
            // The server's flow has the former end until it follows.
            for (port, word, remote) in [(5000, 0, 5000), (5001, 0, 5000), (5002, 1, 5002)] {
                if port != 5000 {
                    client.rebind(flow, &tuple(v6, port)).expect("a free end");
                }
                send(&mut client, flow, word);
                carry(&mut client, &mut server);
                let received = server.app().received.last().expect("a datagram");
                assert_eq!(*received, (port, WORDS[word as usize].to_vec()));
                carry(&mut server, &mut client);
                let id = server.app().flow.expect("it has come");
                let tuple = server.with(NOW, id, |_, socket| socket.tuple()).expect("open");
                assert_eq!((tuple.remote_port, server.active()), (remote, 1));
            }
            assert_eq!(client.app().received, vec![(443, b"answer".to_vec()); 3]);
            let counters = server.counters(ClassId(0));
            assert_eq!((counters.accepts, counters.segments_out, counters.sent), (1, 3, 18));
            assert_eq!(connect(&mut client, 5002), Err(ConnectError::InUse));
            let other = connect(&mut client, 5000).expect("free again");
            assert_eq!(client.rebind(other, &tuple(v6, 5002)), Err(ConnectError::InUse));
            assert_eq!(client.rebind(other, &tuple(!v6, 5003)), Err(ConnectError::Family));
            let none = FlowId(flow.0 + 7);
            assert_eq!(client.rebind(none, &tuple(v6, 5003)), Err(ConnectError::InUse));
            // Another local end is not the server's flow, whatever the application says.
            let late = Tuple { remote_port: 444, ..tuple(v6, 5004) };
            let stray = client.connect(NOW, ClassId(0), late, ()).expect("a free end");
            send(&mut client, stray, 0);
            carry(&mut client, &mut server);
            assert_eq!(server.active(), 2);
        }
    }
}
