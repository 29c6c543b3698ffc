//! Two stacks and the path between them, in virtual time.

use squall_tcp::{
    Congestion, ConnectError, FlowHint, FlowId, FlowKind, Piece, Reason, Stack, Tunables, Tuple,
};
use squall_units::Nanos;

use crate::common::{App, Fault, Pair, Plan, Talk, Wire, tuple};

const MS: u64 = 1_000_000;

#[test]
fn a_request_is_answered_and_nothing_is_left() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan { v6, ..Plan::default() });
        pair.run();
        pair.check();
        assert_eq!(pair.client.counters(pair.class).closed, 1);
    }
}

#[test]
fn megabytes_arrive_whole_over_a_faulty_path() {
    for loss in [0.0, 0.01, 0.05] {
        for (sack, timestamps, wscale) in [
            (true, true, Some(7)),
            (false, false, None),
            (true, false, Some(4)),
            (false, true, Some(7)),
        ] {
            for congestion in [Congestion::NewReno, Congestion::Cubic, Congestion::Bbr] {
                let tunables = Tunables {
                    sack,
                    timestamps,
                    wscale,
                    window: if wscale.is_some() { 256 << 10 } else { 65_535 },
                    reassembly: 65_535,
                    congestion,
                    ..Tunables::default()
                };
                let fault = Fault {
                    loss,
                    reorder: loss,
                    duplicate: loss,
                    delay: Nanos(5 * MS),
                    ..Fault::default()
                };
                let mut pair = Pair::new(Plan {
                    request: 3_000_000,
                    response: 1_000_000,
                    tunables,
                    fault,
                    v6: sack != timestamps,
                    ..Plan::default()
                });
                pair.run();
                pair.check();
                assert_eq!(
                    pair.client.counters(pair.class).ended(Reason::Closed),
                    1,
                    "{loss} {sack} {timestamps}"
                );
            }
        }
    }
}

#[test]
fn sixty_four_megabytes_arrive_in_order_through_gso_packets() {
    let mut pair = Pair::new(Plan {
        request: 64 << 20,
        response: 1,
        gso_max_size: 65_535,
        fault: Fault { delay: Nanos(MS), loss: 0.001, ..Fault::default() },
        chunk: 1 << 20,
        tunables: Tunables {
            window: 4 << 20,
            wscale: Some(8),
            reassembly: 4 << 20,
            ..Tunables::default()
        },
        ..Plan::default()
    });
    pair.run();
    pair.check();
    assert!(pair.sent < (64 << 20) / 1448, "{} packets: GSO packets, most of them", pair.sent);
}

#[test]
fn a_paused_reader_closes_the_window_and_reopens_it() {
    let mut pair = Pair::new(Plan {
        request: 1_000_000,
        pause: Some((100_000, Nanos(20_000 * MS))),
        tunables: Tunables {
            window: 65_535,
            wscale: None,
            reassembly: 65_535,
            ..Tunables::default()
        },
        ..Plan::default()
    });
    pair.run();
    pair.check();
    let (client, server) = (pair.client.counters(pair.class), pair.server.counters(pair.class));
    assert!(server.zero_windows_out > 0 && client.zero_windows_in > 0 && client.window_probes > 3);
    assert_eq!(client.retransmit_rto, 0);
}

#[test]
fn many_flows_end_and_leave_nothing() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan {
            flows: 500,
            request: 5000,
            response: 40_000,
            v6,
            fault: Fault {
                loss: 0.02,
                reorder: 0.02,
                duplicate: 0.02,
                corrupt: 0.01,
                delay: Nanos(MS),
                ..Fault::default()
            },
            ..Plan::default()
        });
        pair.run();
        pair.check();
        let bad = pair.client.strays().bad_tcp_checksum + pair.client.strays().bad_ip_checksum;
        assert!(bad > 0, "damage is seen");
    }
}

/// Simultaneous open: RFC 9293 §3.5, figure 8.
#[test]
fn both_may_begin_at_once() {
    let mut pair = Pair::new(Plan { flows: 0, ..Plan::default() });
    let there = tuple(false, 5000);
    let back = Tuple {
        local: there.remote,
        local_port: 80,
        remote: there.local,
        remote_port: 5000,
        ..there
    };
    let (sends, expects) = (100, 100);
    pair.client
        .connect(pair.now, pair.class, there, Talk { sends, expects, ..Talk::default() })
        .unwrap();
    pair.server
        .connect(
            pair.now,
            pair.class,
            back,
            Talk { sends, expects, server: true, ..Talk::default() },
        )
        .unwrap();
    pair.plan.flows = 1;
    pair.run();
    pair.check();
    assert_eq!(pair.server.counters(pair.class).attempts, 1);
    assert_eq!(pair.server.counters(pair.class).accepts, 0);
}

#[test]
fn a_half_closed_client_receives_the_response() {
    // The client closes as soon as it has sent its request: half-closed, it still gets the
    // response.
    let mut pair =
        Pair::new(Plan { request: 1000, response: 2_000_000, half_close: true, ..Plan::default() });
    pair.run();
    pair.check();
}

#[test]
fn refused_and_unanswered_connections_end_with_their_reason() {
    let mut pair = Pair::new(Plan::default());
    pair.server.app_mut().class = None;
    pair.run();
    assert_eq!(pair.client.app().ended[0].0, Reason::Refused);
    assert_eq!((pair.server.strays().not_accepted, pair.server.strays().resets_out), (1, 1));

    let mut pair =
        Pair::new(Plan { fault: Fault { loss: 1.0, ..Fault::default() }, ..Plan::default() });
    pair.run();
    assert_eq!(pair.client.app().ended[0].0, Reason::ConnectTimeout);
    assert_eq!(pair.client.counters(pair.class).retransmit_syn, 5);
    // Time-outs of 1 + 2 + 4 + 8 + 16 + 32 s.
    assert!((63.0..63.1).contains(&(pair.now - Nanos(5_000 * MS)).as_secs_f64()), "{}", pair.now);
}

#[test]
fn datagrams_go_both_ways_and_silence_ends_the_flow() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan { flows: 0, v6, ..Plan::default() });
        let udp = Tuple { kind: FlowKind::Udp, ..tuple(v6, 5000) };
        let talk = Talk { sends: 300, expects: 100, keeps: true, ..Talk::default() };
        pair.server.app_mut().server =
            Talk { sends: 100, expects: 300, server: true, keeps: true, ..Talk::default() };
        pair.client.connect(pair.now, pair.class, udp, talk).unwrap();
        pair.run();
        for stack in [&pair.client, &pair.server] {
            assert_eq!(stack.app().ended.len(), 1);
            let (reason, talk) = stack.app().ended[0];
            assert_eq!(
                (reason, talk.received, stack.app().bad_octets),
                (Reason::Idle, talk.expects, 0)
            );
            assert_eq!(stack.active(), 0);
        }
        // Without a listener, an ICMP port unreachable message ends the flow.
        pair.server.app_mut().class = None;
        pair.client.connect(pair.now, pair.class, udp, talk).unwrap();
        pair.run();
        assert_eq!(pair.client.app().ended[1].0, Reason::Refused);
        assert_eq!(pair.client.counters(pair.class).icmp_in, 1);
    }
}

#[test]
fn probes_keep_a_silent_flow_or_end_it() {
    let tunables = Tunables {
        keepidle: Nanos(10_000 * MS),
        keepintvl: Nanos(1_000 * MS),
        keepcnt: 3,
        ..Tunables::default()
    };
    // Both sides are silent: the server probes too.
    let mut pair =
        Pair::new(Plan { request: 1, response: 0, tunables, keeps: true, ..Plan::default() });
    let end = pair.now + Nanos(100_000 * MS);
    while pair.now < end && pair.step() {}
    assert_eq!(pair.client.active(), 1);
    assert!(pair.client.counters(pair.class).keepalive_probes >= 4);
    pair.plan.fault.loss = 1.0;
    pair.run();
    assert_eq!(pair.client.app().ended[0].0, Reason::KeepaliveTimeout);
    assert_eq!(pair.server.app().ended[0].0, Reason::KeepaliveTimeout);
}

#[test]
fn a_router_with_a_small_mtu_makes_segments_shorter() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan { request: 100_000, v6, mtu: Some(1300), ..Plan::default() });
        pair.run();
        pair.check();
        assert!(pair.client.counters(pair.class).mss_lowered > 0);
    }
}

#[test]
fn flows_at_rest_take_half_the_memory_and_behave_as_others() {
    const FLOWS: u16 = 400;
    const SECOND: Nanos = Nanos::SECOND;
    /// Opens flows, which wait, then others, and then uses the first again.
    fn run(records: u32, v6: bool, keepidle: Nanos) -> Pair {
        let tunables = Tunables { keepidle, ..Tunables::default() };
        let mut pair = Pair::new(Plan {
            flows: 0,
            keeps: true,
            tunables,
            v6,
            records,
            record: true,
            prefetch: true,
            ..Plan::default()
        });
        (pair.client.app_mut().log, pair.server.app_mut().log) = (true, true);
        let talk = Talk { sends: 100, expects: 100, keeps: true, ..Talk::default() };
        let wait = |pair: &mut Pair, time: Nanos| {
            let end = pair.now + time;
            while pair.now < end && pair.step() {}
            pair.now = pair.now.max(end);
        };
        let ids: Vec<_> = (0..2 * FLOWS)
            .map(|n| {
                if n == FLOWS {
                    while pair.server.counters(pair.class).acked < 100 * u64::from(FLOWS) {
                        assert!(pair.step());
                    }
                    // No timer is due in this time.
                    pair.now = pair.now + Nanos(100 * MS);
                }
                let id = pair.client.connect(pair.now, pair.class, tuple(v6, 1000 + n), talk);
                let id = id.expect("a free tuple");
                if n % 16 == 1 {
                    let at = pair.now + Nanos(SECOND.0 * 5 / 2);
                    pair.client.with(pair.now, id, |_, socket| socket.wake_at(at));
                }
                id
            })
            .collect();
        wait(&mut pair, SECOND);
        for id in &ids[..usize::from(FLOWS)] {
            let sent = pair.client.with(pair.now, *id, |_, socket| {
                assert_eq!(socket.id(), *id);
                socket.send(Piece { message: 100, nth: 0, len: 10 })
            });
            assert_eq!(sent, Some(Ok(())));
            wait(&mut pair, Nanos(5 * MS));
        }
        pair
    }
    for (v6, keepidle) in [(false, Nanos::ZERO), (true, SECOND)] {
        let [few, many] = [0, 1 << 16].map(|records| run(records, v6, keepidle));
        assert_eq!(few.recorded, many.recorded);
        let mut ends = [few, many];
        let sides: [fn(&Pair) -> &Stack<App>; 2] = [|pair| &pair.client, |pair| &pair.server];
        for end in sides {
            let [few, many] = ends.each_ref().map(end);
            assert_eq!((few.app().bad_octets, few.active()), (0, 2 * usize::from(FLOWS)));
            assert_eq!(few.app().events, many.app().events);
            assert!(few.look(0, u32::MAX).eq(many.look(0, u32::MAX)));
            // Keepalive probes take records for many flows at the same time.
            let saves = few.memory() + usize::from(FLOWS) * 30 < many.memory();
            assert!(saves || keepidle > Nanos::ZERO, "{} {}", few.memory(), many.memory());
        }
        let [few, _] = &mut ends;
        for n in 0..few.client.records() {
            few.client.with(few.now, FlowId(n), |_, socket| socket.abort());
        }
        few.run();
        assert_eq!((few.client.active(), few.server.active()), (0, 0));
        assert_eq!((few.client.next_due(), few.server.next_due()), (None, None));
    }
}

#[test]
fn the_same_key_and_time_give_the_same_packets() {
    let run = || {
        let fault = Fault { loss: 0.05, reorder: 0.1, delay: Nanos(MS), ..Fault::default() };
        let mut pair =
            Pair::new(Plan { flows: 20, request: 20_000, fault, record: true, ..Plan::default() });
        pair.run();
        pair.recorded
    };
    assert_eq!(run(), run());
}

#[test]
fn hints_of_prefetched_packets_change_no_packet() {
    let run = |v6, prefetch| {
        let fault = Fault { loss: 0.05, corrupt: 0.01, delay: Nanos(MS), ..Fault::default() };
        let plan = Plan { flows: 50, request: 20_000, fault, record: true, ..Plan::default() };
        let mut pair = Pair::new(Plan { v6, prefetch, ..plan });
        pair.run();
        pair.recorded
    };
    for v6 in [false, true] {
        assert_eq!(run(v6, true), run(v6, false));
    }
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "a hint belongs to one packet")]
fn a_hint_is_refused_with_another_packet() {
    let mut pair = Pair::new(Plan { flows: 2, ..Plan::default() });
    let mut wire = Wire::default();
    pair.client.transmit(pair.now, &mut wire);
    let mut near = [FlowHint::default()];
    pair.server.prefetch(std::iter::once(&wire.packets[0].0[..]), &mut near);
    pair.server.receive_prefetched(pair.now, &wire.packets[1].0, near[0]);
}

#[test]
fn flows_of_both_ip_versions_send_in_the_order_in_which_they_were_queued() {
    let mut pair = Pair::new(Plan { flows: 2, ..Plan::default() });
    let versions = [true, true, false, true, false, false, true];
    for (v6, port) in versions.into_iter().zip(20_000..) {
        pair.client.connect(pair.now, pair.class, tuple(v6, port), Talk::default()).unwrap();
    }
    let mut wire = Wire::default();
    assert_eq!(pair.client.transmit(pair.now, &mut wire), 9);
    let sent: Vec<_> = wire.packets.iter().map(|(packet, _)| packet[0] >> 4 == 6).collect();
    assert_eq!(sent[2..], versions);
    assert!(!pair.client.has_output());
}

#[test]
fn ports_are_free_again_after_time_wait() {
    // The side that closes first is in TIME-WAIT.
    let mut pair = Pair::new(Plan { half_close: true, ..Plan::default() });
    while pair.client.time_wait() == 0 {
        assert!(pair.step());
    }
    assert_eq!(pair.client.active(), 0);
    let again = pair.client.connect(pair.now, pair.class, tuple(false, 10_000), Talk::default());
    assert_eq!(again, Err(ConnectError::InUse));
    pair.run();
    assert!(
        pair.client.connect(pair.now, pair.class, tuple(false, 10_000), Talk::default()).is_ok()
    );
}

#[test]
fn flows_in_time_wait_take_no_records_but_places() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Plan { half_close: true, flows: 100, v6, ..Plan::default() });
        let talk = Talk { sends: 100, expects: 100, half: true, ..Talk::default() };
        let mut port = 10_100;
        loop {
            while pair.client.active() > 0 {
                assert!(pair.step());
            }
            if pair.client.time_wait() == 1000 {
                break;
            }
            for _ in 0..100 {
                pair.client.connect(pair.now, pair.class, tuple(v6, port), talk).unwrap();
                port += 1;
            }
        }
        // 100 flows of 112 octets, with 24 for a piece and timers, 1,024 TIME-WAIT entries, 2,048
        // slots of each table, IPv6 addresses, and the queue of flows that have something to send.
        let tables = 2 * 2048 * 4;
        let most = 100 * 136 + 1024 * 32 + tables + if v6 { 1024 * 36 } else { 0 } + 12_288;
        assert!(pair.client.memory() <= most, "{} {most}", pair.client.memory());
        let full = pair.client.connect(pair.now, pair.class, tuple(v6, port), talk);
        assert_eq!(full, Err(ConnectError::Full));
        let due = pair.client.next_due().unwrap();
        assert!(due > pair.now && due <= pair.now + Nanos(1_001 * MS), "{due:?}");
        pair.run();
        assert_eq!((pair.client.time_wait(), pair.client.next_due()), (0, None));
        assert!(pair.client.connect(pair.now, pair.class, tuple(v6, port), talk).is_ok());
    }
}

#[test]
fn an_acknowledgment_is_overdue_after_64_kib_of_one_flow() {
    let received = |flows, response| {
        let mut pair = Pair::new(Plan { flows, response, ..Plan::default() });
        pair.run();
        pair.check();
        assert!(!pair.client.is_ack_overdue());
        pair.pressed
    };
    // Packets of one flight arrive at once, but each of many flows receives little.
    assert_eq!(received(100, 14_000), 0);
    assert!(received(1, 1_000_000) > 0);
}
