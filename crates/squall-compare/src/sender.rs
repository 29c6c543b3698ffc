//! Sends a data set at a rate: synthetic frames by the engine, captures by a paced loop.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::json;
use squall::{Error, RunOptions, Session};
use squall_machine::kinds::{Use, Wanted};
use squall_options::{Cpus, Time};
use squall_port::{BATCH, SendError, TxQueue};
use squall_port_linux::child;
use squall_units::{FCS_LEN, Nanos, Rate, RateUnit};

use super::data::{Captured, DataSet, Frames};

/// The sending port, and the CPU of the sender.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Port address: `xdp_live:veth-a`.
    pub address: String,
    pub cpu: Option<u32>,
}

/// The fastest kind of port that can send these frames from `interface` here, and why faster ones
/// cannot. Kinds that generate frames in the kernel are tried first.
pub fn choose(
    interface: &str,
    data: &DataSet,
    cpu: Option<u32>,
) -> Result<(Sender, Vec<String>), Error> {
    // AF_XDP is faster with full frames, but af_packet works with every MTU and without XDP
    // privileges.
    let kinds: &[&str] = match data.frames {
        Frames::Synthetic(_) => &["xdp_live", "af_packet"],
        Frames::Capture(_) => &["af_packet"],
    };
    let mut notes = Vec::new();
    let mut failed = None;
    for kind in kinds {
        let sender = Sender { address: format!("{kind}:{interface}"), cpu };
        let trial = match &data.frames {
            Frames::Synthetic(weights) => sender
                .session(weights, Rate::pps(1000), Nanos(1_000_000))
                .and_then(|session| session.open()?.start()?.finish().map(drop)),
            Frames::Capture(_) => Ok(()),
        };
        match trial {
            Ok(()) => return Ok((sender, notes)),
            Err(error) => {
                let why = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(", ");
                notes.push(format!("cannot send {} by {kind}: {why}", data.info.name));
                failed = Some(error);
            }
        }
    }
    Err(failed.unwrap_or_else(|| Error::Environment(format!("cannot send from {interface}"))))
}

impl Sender {
    /// Sends for `duration`, or until `stop` returns true. Returns the time from first to last
    /// departure, seconds.
    pub fn send(
        &self,
        data: &DataSet,
        rate: Rate,
        duration: Nanos,
        stop: &dyn Fn() -> bool,
    ) -> Result<f64, Error> {
        match &data.frames {
            Frames::Synthetic(weights) => self.generate(weights, rate, duration, stop),
            Frames::Capture(frames) => self.replay(frames, rate, duration, stop),
        }
    }

    fn generate(
        &self,
        weights: &[(u32, u32)],
        rate: Rate,
        duration: Nanos,
        stop: &dyn Fn() -> bool,
    ) -> Result<f64, Error> {
        let mut run = self.session(weights, rate, duration)?.open()?.start()?;
        while !run.wait(Duration::from_millis(50)) {
            if stop() {
                run.stop();
            }
        }
        Ok(run.finish()?.duration_s)
    }

    fn session(
        &self,
        weights: &[(u32, u32)],
        rate: Rate,
        duration: Nanos,
    ) -> Result<Session, Error> {
        let sizes: Vec<(u32, u32)> =
            weights.iter().map(|(len, weight)| (len + FCS_LEN, *weight)).collect();
        let size = match sizes[..] {
            [(one, _)] => json!(one),
            _ => json!({ "weights": sizes }),
        };
        let profile = json!({
            "ports": { "A": self.address },
            "stream": [{
                "port": "A",
                // The destination MAC address is that of another host, so this host drops the frame
                // after the tools have seen it.
                "packet": "eth(dst=02:00:00:00:00:02)/ipv4(src=10.0.0.1,dst=10.0.0.2)/udp(sport=1024,dport=9)",
                "size": size,
                "rate": rate.to_string(),
            }],
        });
        let mut profile = squall::Profile::from_value(&profile, "squall compare")?;
        profile.stop.duration = Some(duration);
        Session::new(profile).with(RunOptions {
            receive: Some(false),
            linger: Some(Time::from_millis(1)),
            cpus: self.cpu.map(|cpu| Cpus(vec![cpu])),
            ..RunOptions::default()
        })
    }

    fn replay(
        &self,
        frames: &Captured,
        rate: Rate,
        duration: Nanos,
        stop: &dyn Fn() -> bool,
    ) -> Result<f64, Error> {
        let wanted = Wanted { to: Use::Send, ..Wanted::default() };
        let (mut port, _, _) = squall_machine::ports::open(&self.address, wanted)?;
        let failed =
            |error: std::io::Error| Error::Environment(format!("{}: {error}", self.address));
        let mut queue = port.open_tx(0, frames.longest() as u32).map_err(failed)?;
        // `stop` is called only on this thread, as it need not be `Sync`.
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let loops = scope.spawn(move || {
                if let Some(cpu) = self.cpu {
                    child::bind_thread(cpu);
                }
                paced(queue.as_mut(), frames, rate, duration, over)
            });
            while !loops.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
                over.fetch_or(stop(), Ordering::Relaxed);
            }
            loops.join().expect("the loop does not panic").map_err(failed)
        })
    }
}

/// Computes due times from the sum of all earlier frames, so rounding errors do not accumulate.
struct Pace {
    rate: Rate,
    /// Frames or bits that are due before the next frame.
    before: u128,
}

impl Pace {
    fn new(rate: Rate) -> Self {
        Self { rate, before: 0 }
    }

    /// Returns the due time of the next frame, since the start. Then advances by a frame of `len`
    /// octets without FCS.
    fn next(&mut self, len: usize) -> Duration {
        let bits = 8 * (len as u128 + u128::from(FCS_LEN));
        let weight = match self.rate.unit {
            RateUnit::Pps => 1,
            RateUnit::BpsL2 => bits,
            RateUnit::BpsL1 => bits + 8 * u128::from(squall_units::L1_OVERHEAD),
            RateUnit::Percent | RateUnit::Max => 0,
        };
        let due = self.before * 1_000_000_000 * u128::from(self.rate.den)
            / u128::from(self.rate.num.max(1));
        self.before += weight;
        Duration::from_nanos(u64::try_from(due).unwrap_or(u64::MAX))
    }
}

/// Sends the frames of a capture in a loop, each when it is due or as soon afterward as the port
/// accepts it. Returns the time from first to last departure, seconds.
fn paced(
    queue: &mut dyn TxQueue,
    frames: &Captured,
    rate: Rate,
    duration: Nanos,
    over: &AtomicBool,
) -> std::io::Result<f64> {
    let end = Duration::from_nanos(duration.0);
    let mut pace = Pace::new(rate);
    let (mut next, mut due) = (0, pace.next(frames.frame(0).len()));
    let start = Instant::now();
    let mut last = Duration::ZERO;
    loop {
        let now = start.elapsed();
        // Also check the clock: at the maximum rate, all frames are due immediately.
        if due.max(now) >= end || over.load(Ordering::Relaxed) {
            break;
        }
        if due > now {
            wait(due - now);
            continue;
        }
        let mut batch = queue.lend(BATCH);
        let (lent, mut filled) = (batch.len(), 0);
        while filled < lent && due <= now {
            let frame = frames.frame(next);
            batch.frame(filled, frame.len(), Nanos(due.as_nanos() as u64)).copy_from_slice(frame);
            filled += 1;
            next = (next + 1) % frames.len();
            due = pace.next(frames.frame(next).len());
        }
        let mut left = filled;
        while left > 0 {
            match queue.send(left) {
                Ok(n) => left -= n,
                Err(SendError::Frame(_)) => left -= 1,
                Err(SendError::Port(error)) => return Err(error),
            }
        }
        last = start.elapsed();
    }
    queue.finish()?;
    Ok(last.as_secs_f64())
}

/// Sleeps for most of `time` and spins for the rest, because a sleep can take 0.1 ms too long.
fn wait(time: Duration) {
    const SLACK: Duration = Duration::from_micros(150);
    match time.checked_sub(SLACK) {
        Some(sleep) if sleep > Duration::ZERO => std::thread::sleep(sleep),
        _ => std::hint::spin_loop(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_do_not_drift() {
        let mut pace = Pace::new("3 pps".parse().unwrap());
        let due: Vec<u128> = (0..3_000_001).map(|_| pace.next(60).as_nanos()).collect();
        assert_eq!(
            (due[0], due[1], due[3], due[3_000_000]),
            (0, 333_333_333, 1_000_000_000, 1_000_000_000_000_000)
        );
        // 64 octets with FCS are 512 bits.
        let mut pace = Pace::new("512 kbps".parse().unwrap());
        let due: Vec<u128> = [60, 1514, 60].map(|len| pace.next(len).as_nanos()).into();
        assert_eq!(due, [0, 1_000_000, 1_000_000 + 23_718_750]);
        let mut pace = Pace::new(Rate::MAX);
        assert_eq!([60, 60].map(|len| pace.next(len)), [Duration::ZERO; 2]);
    }
}
