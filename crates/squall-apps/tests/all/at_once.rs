//! Programs have the same effects if the events of a segment are handled at once and one by one.

use proptest::{collection::vec, prelude::*};
use squall_apps::{Counts, Program};
use squall_tcp::{ClassId, Counters, FlowKind};
use squall_units::Nanos;

use crate::common::{Pair, secs};

/// Loss, reordering and duplication, of 1,000 packets.
type Path = [u64; 3];

/// All packets, with their times and senders, what both sides counted, and how many times the
/// events of a segment were handled at once.
type Run = (Vec<(Nanos, usize, Vec<u8>)>, [(Counts, Counters); 2], u64);

fn run(programs: &(Program, Program), seed: u64, path: Path, at_once: bool) -> Run {
    let mut pair = Pair::new(seed, std::slice::from_ref(programs));
    [pair.loss, pair.reordered, pair.duplicated] = path;
    pair.trace = Some(vec![]);
    for stack in &mut pair.stacks {
        (stack.app_mut().record, stack.app_mut().at_once) = (false, at_once);
    }
    // With losses, one flow after the other: the order in which two flows repeat segments at the
    // same time is that of their entries in the wheel, which differs.
    let gap = if path == [0; 3] { Nanos(300_000) } else { secs(100) };
    for _ in 0..5 {
        pair.begin(0, FlowKind::Tcp);
        pair.run(pair.now + gap);
    }
    pair.run(secs(1000));
    pair.assert_nothing_left();
    let counts = [0, 1].map(|side| {
        let of_stack = pair.stacks[side].counters(ClassId(0)).clone();
        (pair.counts(side).clone(), of_stack)
    });
    let handled = pair.stacks.iter().map(|stack| stack.app().handled).sum();
    (pair.trace.take().unwrap_or_default(), counts, handled)
}

/// Asserts that both ways do the same, and returns how often one did it at once.
fn same(programs: &(Program, Program), seed: u64, path: Path) -> u64 {
    let (at_once, one_by_one) = (run(programs, seed, path, true), run(programs, seed, path, false));
    assert_eq!(at_once.1, one_by_one.1);
    assert!(
        at_once.0 == one_by_one.0,
        "other packets: {} or {}",
        at_once.0.len(),
        one_by_one.0.len()
    );
    assert_eq!(one_by_one.2, 0);
    at_once.2
}

/// One pass of a program: octets of the request and of the answer, and how often they repeat.
type Part = (u32, u32, u32);

fn programs(parts: &[Part], variant: u8) -> (Program, Program) {
    let (mut client, mut server) = (Program::client("client"), Program::server("server"));
    // With marks, octets differ from flow to flow.
    let text = |len: u32, marked: bool| match marked && len > 8 {
        true => format!("${{random:hex:8}}{}", "m".repeat(len as usize - 8)),
        false => "m".repeat(len as usize),
    };
    let marked = variant & 1 == 1;
    if variant & 32 == 32 {
        // The server speaks first, and a loop begins with a receive.
        client = client.repeat(3, |all| all.recv(5).send("a word"));
        server = server.repeat(3, |all| all.send("hello").recv(6));
    }
    for &(request, answer, times) in parts {
        client = client.repeat(times, |all| all.send(&text(request, marked)).recv(answer));
        server = server.repeat(times, |all| all.recv(request).send(&text(answer, marked)));
        if variant & 2 == 2 {
            client = client.delay("uniform 0 ms 3 ms");
        }
        if variant & 4 == 4 {
            // Two messages, and two receives for one answer.
            client = client.send("one").send("two").recv(2).recv(3);
            server = server.recv(6).send("three");
        }
    }
    match variant >> 3 & 3 {
        0 => (client, server) = (client.close(), server.wait_peer_close()),
        1 => (client, server) = (client.wait_peer_close(), server.close()),
        // The server sends more than the client awaits.
        2 => server = server.send("more"),
        _ => {}
    }
    (client.build().expect("a right program"), server.build().expect("a right program"))
}

#[test]
fn an_exchange_is_handled_at_once() {
    let exchange = squall_apps::builtin::exchange("exchange", 100, 100, 1).expect("right lengths");
    // For each flow: SYN-ACK, answer and FIN at the client, request and FIN at the server.
    assert_eq!(same(&exchange, 1, [0; 3]), 5 * 5);
    // The same for each pass of a loop.
    let three = squall_apps::builtin::exchange("three", 100, 100, 3).expect("right lengths");
    assert_eq!(same(&three, 1, [0; 3]), 5 * (5 + 2 * 2));
    // Octets of a long answer count as they come.
    let long = squall_apps::builtin::exchange("long", 100, 100_000, 3).expect("right lengths");
    assert!(same(&long, 1, [0; 3]) > 5 * 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn programs_do_the_same_at_once_and_one_by_one(
        parts in vec((1u32..3000, 1u32..5000, 1u32..4), 1..4),
        variant in 0u8..64,
        seed in any::<u64>(),
        path in prop_oneof![Just([0; 3]), Just([30, 0, 0]), Just([0, 50, 50]), Just([50, 50, 50])],
    ) {
        same(&programs(&parts, variant), seed, path);
    }
}
