//! Measures the CPU time per frame of a dpdk port, on one thread: `cargo run --release -p
//! squall-port-dpdk --example dpdk_cost [ADDRESS]...` (`null:` and net_null by default).
//!
//! Frames are not filled: the result is the time for lending slots, setting lengths, sending, and
//! the driver.

use std::io;

use squall_port::{BATCH, Port, TxQueue};
use squall_units::Nanos;

const RUNS: usize = 9;
const FRAMES: usize = 20_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses: Vec<String> = std::env::args().skip(1).collect();
    if addresses.is_empty() {
        addresses = ["null:", "dpdk:vdev=net_null0"].map(str::to_owned).into();
    }
    for address in &addresses {
        let mut port = open(address)?;
        let mut tx = port.open_tx(0, 60)?;
        ns_per_frame(&mut *tx)?;
        let mut runs: Vec<_> =
            (0..RUNS).map(|_| ns_per_frame(&mut *tx)).collect::<Result<_, _>>()?;
        runs.sort_by(f64::total_cmp);
        println!(
            "{address:24} {:6.2} ns/frame ({:.2} to {:.2})",
            runs[RUNS / 2],
            runs[0],
            runs[RUNS - 1]
        );
    }
    Ok(())
}

fn open(address: &str) -> io::Result<Box<dyn Port>> {
    let address = address.parse()?;
    match squall_port::open(&address)? {
        Some(port) => Ok(port),
        None => squall_port_dpdk::open(&address)?
            .ok_or_else(|| io::Error::other("not a port of these crates")),
    }
}

fn ns_per_frame(tx: &mut dyn TxQueue) -> Result<f64, Box<dyn std::error::Error>> {
    let begun = thread_ns();
    let mut sent = 0;
    while sent < FRAMES {
        let mut batch = tx.lend(BATCH);
        let n = batch.len();
        for i in 0..n {
            batch.frame(i, 60, Nanos(sent as u64));
        }
        sent += tx.send(n)?;
    }
    Ok((thread_ns() - begun) as f64 / sent as f64)
}

/// CPU time of this thread, which other programs on the machine hardly affect.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an existing clock, and room for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
