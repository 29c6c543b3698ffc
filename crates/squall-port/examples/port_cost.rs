//! Measures the cost per frame of the ports in memory, on one thread:
//! `cargo run --release -p squall-port --example port_cost`.

use std::{hint::black_box, time::Instant};

use squall_port::{Port, open};
use squall_units::Nanos;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (address, octets) in
        [("null:", 60), ("loop:cost", 60), ("loop:cost", 1514), ("loop:cost", 9014)]
    {
        for batch in [1, 64] {
            let mut runs: Vec<_> =
                (0..5).map(|_| ns_per_frame(address, octets, batch)).collect::<Result<_, _>>()?;
            runs.sort_by(f64::total_cmp);
            println!(
                "{address:10} {octets:5} octets, batches of {batch:2}: {:7.2} ns/frame \
                 ({:.2}..{:.2})",
                runs[2], runs[0], runs[4]
            );
        }
    }
    Ok(())
}

/// Lends slots, sets length and due time, sends, receives, and reads each frame's first octet.
fn ns_per_frame(
    address: &str,
    octets: usize,
    batch: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut port: Box<dyn Port> = open(&address.parse()?)?.ok_or("not a port of this crate")?;
    let (mut tx, mut rx) = (port.open_tx(0, octets as u32)?, port.open_rx(0)?);
    let frames = 4_000_000 / (1 + octets / 100);
    let (mut sent, mut sum) = (0, 0u64);
    let start = Instant::now();
    while sent < frames {
        let mut lent = tx.lend(batch);
        let n = lent.len();
        for i in 0..n {
            lent.frame(i, octets, Nanos(sent as u64));
        }
        sent += tx.send(n)?;
        for (octets, _) in rx.receive()?.iter() {
            sum += u64::from(octets[0]);
        }
    }
    black_box(sum);
    Ok(start.elapsed().as_nanos() as f64 / sent as f64)
}
