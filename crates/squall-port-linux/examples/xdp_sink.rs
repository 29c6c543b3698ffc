//! Counts the frames that arrive on an interface, in XDP: `xdp_sink IFACE SECONDS [gaps=NOMINAL_NS]
//! [after=SECONDS]`. Prints `ready`, and at the end one JSON object. The time starts `after` the
//! first frame.
//!
//! With `gaps`: the number of gaps within 250 ns of the nominal one, and the error of the mean.

use std::{io::Write, process::ExitCode, thread, time::Duration};

use squall_port_linux::sink::{BIN_NS, Sink};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |key: &str| {
        arguments.iter().find_map(|a| a.strip_prefix(key)).and_then(|a| a.parse::<f64>().ok())
    };
    let nominal = option("gaps=").map(|ns| ns as u64);
    let seconds =
        arguments.get(1).and_then(|a| a.parse::<f64>().ok()).filter(|s| *s > 0.0 && *s < 1e6);
    let (Some(interface), Some(seconds)) = (arguments.first(), seconds) else {
        eprintln!("xdp_sink: expected IFACE SECONDS [gaps=NANOSECONDS] [after=SECONDS]");
        return ExitCode::from(2);
    };
    let sink = match Sink::attach(interface, nominal.is_some()) {
        Ok(sink) => sink,
        Err(error) => {
            eprintln!("xdp_sink: {interface}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("ready");
    let _ = std::io::stdout().flush();
    if let Some(after) = option("after=") {
        while sink.seen().frames == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_secs_f64(after.clamp(0.0, 1e6)));
    }
    // The frames within the requested time.
    let (gaps_before, before, from) = (sink.gaps(), sink.seen(), std::time::Instant::now());
    thread::sleep(Duration::from_secs_f64(seconds));
    let (after, lasted) = (sink.seen(), from.elapsed().as_secs_f64());
    let frames = after.frames - before.frames;
    print!(
        "{{\"frames\": {frames}, \"octets\": {}, \"seconds\": {lasted:.6}, \"pps\": {:.1}",
        after.octets - before.octets,
        frames as f64 / lasted
    );
    if let Some(nominal) = nominal {
        let mut gaps = sink.gaps();
        gaps.iter_mut().zip(gaps_before).for_each(|(gap, before)| *gap -= before);
        let all: u64 = gaps.iter().sum();
        let near =
            |(i, _): &(usize, &u64)| (*i as u64 * BIN_NS + BIN_NS / 2).abs_diff(nominal) <= 250;
        let within: u64 = gaps.iter().enumerate().filter(near).map(|(_, n)| n).sum();
        let mean = (after.lasted_ns - before.lasted_ns) as f64 / frames.max(1) as f64;
        print!(
            ", \"gaps\": {all}, \"within_250_ns\": {:.5}, \"mean_gap_ns\": {mean:.3}, \
             \"mean_error_ppm\": {:.2}",
            within as f64 / all.max(1) as f64,
            (mean / nominal as f64 - 1.0) * 1e6
        );
    }
    println!("}}");
    ExitCode::SUCCESS
}
