//! Measures the frame rate over a private veth pair from one thread, and the frames that a
//! receiving thread got.
//!
//! `cargo run --release -p squall-port-linux --example af_packet_rate -- [OCTETS] [SECONDS] [ADDRESS-OPTIONS] [rx|norx]`

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use squall_port::{Port, SendError};
use squall_port_linux::{lab, open};
use squall_units::Nanos;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let argument =
        |i: usize, default: &str| arguments.get(i).map_or(default.to_owned(), String::clone);
    let octets: usize = argument(0, "60").parse()?;
    let seconds: f64 = argument(1, "3").parse()?;
    let options = argument(2, "");
    let [a, b] = lab::enter_private(&lab::LabOptions::default())?;
    let port = |name: &str| -> std::io::Result<Box<dyn Port>> {
        Ok(open(&format!("af_packet:{name}{options}").parse()?)?
            .expect("af_packet is of this crate"))
    };
    let (mut sender, mut receiver) = (port(&a)?, port(&b)?);
    let mut tx = sender.open_tx(0, octets as u32)?;
    let stop = AtomicBool::new(false);
    let (mut sent, mut blocked) = (0u64, 0u64);
    let mut rx = if argument(3, "rx") == "rx" { Some(receiver.open_rx(0)?) } else { None };
    let (received, drops) = std::thread::scope(|scope| -> Result<_, Box<dyn std::error::Error>> {
        let counting = scope.spawn(|| {
            let mut received = 0u64;
            let Some(rx) = &mut rx else { return (0, Vec::new()) };
            let mut last = None;
            while last.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(100)) {
                let n = rx.receive().map_or(0, |batch| batch.frames.len());
                received += n as u64;
                if n == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                last = if n == 0 && stop.load(Ordering::Relaxed) {
                    last.or(Some(Instant::now()))
                } else {
                    None
                };
            }
            (received, rx.drops())
        });
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            let mut batch = tx.lend(64);
            for i in 0..batch.len() {
                let frame = batch.frame(i, octets, Nanos::ZERO);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            }
            let mut left = batch.len();
            while left > 0 {
                match tx.send(left) {
                    Ok(0) => {
                        blocked += 1;
                        std::thread::yield_now();
                    }
                    Ok(n) => {
                        sent += n as u64;
                        left -= n;
                    }
                    Err(SendError::Frame(why)) => return Err(why.into()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let elapsed = start.elapsed().as_secs_f64();
        println!(
            "{octets} octets: sent {sent} = {:.3} Mpps, found the queue full {blocked} times",
            sent as f64 / elapsed / 1e6
        );
        stop.store(true, Ordering::Relaxed);
        Ok(counting.join().expect("the receiver does not panic"))
    })?;
    println!("received {received}, drops {drops:?}");
    println!("sender's interface {:?}", sender.interface_counters());
    println!("receiver's interface {:?}", receiver.interface_counters());
    Ok(())
}
