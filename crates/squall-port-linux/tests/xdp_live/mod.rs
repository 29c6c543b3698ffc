//! Tests xdp_live's transmit queue over a veth pair whose other end receives with af_xdp, because
//! that port's program makes the peer use NAPI.

use std::{ops::Range, process::Command, sync::mpsc, thread, time::Duration};

use squall_bpf::{Asm, MapKind, MapSpec, Reg::R0, helper, xdp_action};
use squall_port::{
    Generation, TxOutcome, TxQueue,
    conformance::{Bench, check},
    monotonic,
};
use squall_port_linux::lab;
use squall_units::Nanos;

use crate::{Outcome, Skipped, enter, port, receive};

/// Room for all frames that a test sends before it receives.
const RECEIVER: &str = "af_xdp:veth-b,take=all,ring=32768";

/// Skips the test if this user may not load programs.
fn need_programs() -> Outcome {
    squall_port_linux::Permissions::of_this_process().xdp_programs().map_err(Skipped)?;
    Ok(())
}

pub fn xdp_live_conforms() -> Outcome {
    enter()?;
    need_programs()?;
    let open = &mut || Ok((port("xdp_live:veth-a")?, Some(port(RECEIVER)?)));
    check(Bench { open, stored: false });
    Ok(())
}

/// Puts frames `numbers` into the ring, each with the due time that `due` returns for its number.
fn put(tx: &mut dyn TxQueue, numbers: Range<u32>, due: impl Fn(u32) -> Nanos) {
    let mut next = numbers.start;
    while next < numbers.end {
        let mut batch = tx.lend((numbers.end - next) as usize);
        let n = batch.len();
        assert!(n > 0, "there is room");
        for i in 0..n {
            let number = next + i as u32;
            let frame = batch.frame(i, 60, due(number));
            frame.fill(0);
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[56..60].copy_from_slice(&number.to_be_bytes());
        }
        assert_eq!(tx.send(n).expect("good frames are sent"), n);
        next += n as u32;
    }
}

/// The departure times of the next `n` frames.
fn left(tx: &mut dyn TxQueue, n: usize) -> Vec<Nanos> {
    let deadline = monotonic() + Nanos(5_000_000_000);
    let mut all = Vec::new();
    while all.len() < n && monotonic() < deadline {
        for fate in tx.outcomes().expect("the port is there") {
            let TxOutcome::Left(at) = *fate else { panic!("{fate:?}") };
            all.push(at);
        }
    }
    assert_eq!(all.len(), n);
    all
}

pub fn frames_leave_when_they_are_due_and_can_be_taken_back() -> Outcome {
    enter()?;
    need_programs()?;
    let (mut a, mut b) = (port("xdp_live:veth-a")?, port(RECEIVER)?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    let begin = monotonic() + Nanos(5_000_000);
    let due = |number: u32| begin + Nanos(1_000_000 * u64::from(number));
    put(&mut *tx, 0..10, due);
    put(&mut *tx, 10..40, |_| begin + Nanos(3_600_000_000_000));
    let times = left(&mut *tx, 10);
    assert!((0..10).all(|i| times[i as usize] >= due(i)), "none leaves before its time");
    assert_eq!(tx.take_back(), 30, "what is not due is taken back");
    assert_eq!(tx.take_back(), 0);
    // Long enough for the thread to leave the call and enter it again.
    let until = monotonic() + Nanos(200_000_000);
    while monotonic() < until {
        assert_eq!(tx.outcomes()?, []);
        thread::sleep(Duration::from_millis(1));
    }
    put(&mut *tx, 10..20, |_| Nanos::ZERO);
    tx.finish()?;
    left(&mut *tx, 10);
    assert!(receive(&mut *rx)?.into_iter().eq(0..20), "what was taken back has not left");
    assert_eq!(a.interface_counters().map(|c| c.tx_packets), Some(20));
    Ok(())
}

pub fn a_peer_without_napi_and_a_link_that_goes_down_are_reported() -> Outcome {
    enter()?;
    need_programs()?;
    let mut a = port("xdp_live:veth-a,on_link_down=stop")?;
    let trouble = |tx: &mut dyn TxQueue| {
        put(tx, 0..1, |_| Nanos::ZERO);
        let deadline = monotonic() + Nanos(5_000_000_000);
        loop {
            assert!(monotonic() < deadline, "the fault is reported");
            // The interface may refuse a single frame before the queue knows that it refuses all.
            if let Err(error) = tx.outcomes() {
                return error.to_string();
            }
        }
    };
    let mut tx = a.open_tx(0, 60)?;
    let error = trouble(&mut *tx);
    assert!(error.contains("veth-a accepts no frames from XDP"), "{error}");
    drop(tx);
    let _rx = port(RECEIVER)?.open_rx(0)?;
    let mut tx = a.open_tx(0, 60)?;
    put(&mut *tx, 0..1, |_| Nanos::ZERO);
    left(&mut *tx, 1);
    let down = Command::new("ip").args(["link", "set", "veth-a", "down"]).status()?;
    assert!(down.success());
    let error = trouble(&mut *tx);
    assert!(error.contains("veth-a: the link went down"), "{error}");
    Ok(())
}

pub fn frames_that_are_due_while_the_link_is_down_have_that_reason() -> Outcome {
    enter()?;
    need_programs()?;
    let (mut a, mut b) = (port("xdp_live:veth-a")?, port(RECEIVER)?);
    let (mut tx, mut rx) = (a.open_tx(0, 60)?, b.open_rx(0)?);
    let mut all = 0..10;
    for end in ["veth-b", "veth-a"] {
        put(&mut *tx, all.clone(), |_| Nanos::ZERO);
        left(&mut *tx, 10);
        assert!(receive(&mut *rx)?.into_iter().eq(all.clone()));
        lab::set_down(end)?;
        crate::wait_for_link(&*a, false);
        put(&mut *tx, 0..10, |_| Nanos::ZERO);
        let (mut lost, deadline) = (0, monotonic() + Nanos(60_000_000_000));
        while lost < 10 {
            assert!(monotonic() < deadline, "{lost}");
            for fate in tx.outcomes()? {
                assert_eq!(*fate, TxOutcome::Lost("link_down"));
                lost += 1;
            }
        }
        lab::set_up(end)?;
        crate::wait_for_link(&*a, true);
        all = all.end..all.end + 10;
    }
    put(&mut *tx, all.clone(), |_| Nanos::ZERO);
    left(&mut *tx, 10);
    assert!(receive(&mut *rx)?.into_iter().eq(all));
    assert_eq!(crate::changes(&*a), [false, true, false, true]);
    Ok(())
}

/// Simulates a call that uses all CPU time of a group, so that no thread could run to end it.
pub fn an_unattended_call_ends_by_itself() -> Outcome {
    enter()?;
    need_programs()?;
    let mut a = Asm::new("squall_idle");
    let mut map = |name: &str, kind, value_octets, mmap| {
        a.map(MapSpec { name: name.into(), kind, key_octets: 4, value_octets, entries: 1, mmap });
    };
    map("squall_words", MapKind::Array, 8, true);
    map("squall_exit", MapKind::DevMap, 4, false);
    map("squall_table", MapKind::Array, 8, false);
    // These make the runs of one call take minutes.
    for _ in 0..20 {
        a.call(helper::KTIME_GET_NS);
    }
    a.mov(R0, xdp_action::DROP).exit();
    let generation = Generation {
        object: a.finish(),
        witnesses: vec![],
        memory: 0,
        words: vec![0],
        exit: 1,
        tables: (2, vec![0; 8]),
        frame: vec![0; 60],
        batch: 16,
    };
    let mut generator = port("xdp_live:veth-a")?.open_generator(0, &generation)?;
    let remote = generator.remote();
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        drop(sender.send(generator.run().map_err(|error| error.to_string())))
    });
    let result = receiver.recv_timeout(Duration::from_secs(60));
    while !thread.is_finished() {
        remote.interrupt();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(result, Ok(Ok(())), "it ended by itself");
    Ok(())
}
