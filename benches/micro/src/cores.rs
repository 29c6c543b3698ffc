//! Measures the speedup from a second worker: `squall-bench cores`.
//!
//! Frames/s depend on other programs on the machine. So this also prints the rate that each worker
//! would reach with a CPU of its own: its frames divided by its CPU time, summed over the workers.
//! If two workers contend (for cache lines that move between cores), the CPU time per frame rises,
//! and the sum less than doubles.

use squall::{Profile, Session, report::Report};
use squall_units::median;

/// Number of rounds; odd, for the median. Rounds with one worker and with two alternate.
const ROUNDS: usize = 7;
/// Duration of a round. Long compared to the 20 ms that workers spin before the start, which count
/// as CPU time.
/// as CPU time.
const SECONDS: f64 = 1.5;

/// Prints frames/s and frames per second of CPU time, and their ratios.
pub fn compare(json: bool) -> Result<(), Box<dyn std::error::Error>> {
    for (name, address, signed) in
        [("null", "null:", false), ("loop, measured", "loop:cores", true)]
    {
        // [workers - 1]: (frames/s, frames per second of CPU time)
        let mut found: [Vec<(f64, f64)>; 2] = Default::default();
        for round in 0..=ROUNDS {
            for workers in [1, 2] {
                let report = run(address, signed, workers)?;
                // The first round is only a warm-up.
                if round > 0 {
                    found[workers - 1].push(speeds(&report));
                }
            }
        }
        let ratios = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            let pairs = found[0].iter().zip(&found[1]);
            sorted(pairs.map(|(one, two)| of(two) / of(one)).collect())
        };
        let (wall, cpu) = (ratios(|s| s.0), ratios(|s| s.1));
        for (workers, speeds) in (1..).zip(&found) {
            let cost = median(speeds.iter().map(|s| workers as f64 * 1e9 / s.1)).expect("rounds");
            let mpps = median(speeds.iter().map(|s| s.0 / 1e6)).expect("rounds");
            if json {
                let case = format!("cores-{name}-{workers}");
                println!(
                    "{}",
                    serde_json::json!({"case": case, "cpu_ns_per_frame": cost, "mpps": mpps})
                );
            } else {
                println!("{name:16} {workers} workers  {mpps:7.2} Mpps  {cost:7.2} CPU ns/frame");
            }
        }
        let [wall, cpu] = [wall, cpu].map(|r| (r[ROUNDS / 2], r[0], r[ROUNDS - 1]));
        if json {
            println!(
                "{}",
                serde_json::json!({"case": format!("cores-{name}-ratio"), "cpu": cpu, "wall": wall})
            );
        } else {
            let show = |(median, least, most): (f64, f64, f64)| {
                format!("{median:.2} ({least:.2} to {most:.2})")
            };
            println!(
                "{name:16} two over one: {} by CPU time, {} by the clock",
                show(cpu),
                show(wall)
            );
        }
    }
    Ok(())
}

fn run(address: &str, latency: bool, workers: usize) -> Result<Report, Box<dyn std::error::Error>> {
    let stream = |rate: &str| {
        serde_json::json!({
            "packet": "eth/ipv4/udp", "size": 64, "rate": rate, "latency": latency,
            "vary": [
                {"field": "ipv4.src", "op": "random", "min": "16.0.0.0", "max": "18.0.0.254"},
                {"field": "udp.sport", "op": "increment", "min": 1024, "max": 65535},
            ],
        })
    };
    // One stream, shared by the workers. A measured stream is received by a single worker, which
    // must see the whole sequence.
    let streams = match latency {
        false => vec![stream("max")],
        true => ["9 Mpps", "9.01 Mpps", "9.02 Mpps", "9.03 Mpps"].map(stream).to_vec(),
    };
    let profile =
        serde_json::json!({"ports": {"A": address}, "duration": SECONDS, "stream": streams});
    let profile = Profile::from_value(&profile, "cores")?;
    let session = Session {
        options: squall::RunOptions {
            cores: Some(workers),
            receive: Some(latency),
            ..Default::default()
        },
        ..Session::new(profile)
    };
    Ok(session.open()?.start()?.finish()?)
}

/// Frames/s, and the rate that the workers would reach with a CPU each.
fn speeds(report: &Report) -> (f64, f64) {
    let alone = report.workers.iter().map(|w| w.tx_packets as f64 / w.cpu_s);
    (report.ports[0].tx.packets as f64 / report.duration_s, alone.sum())
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
